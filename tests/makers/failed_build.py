STEP = 'process "/bin/sh -c /build/with-ca python3.11 -u -m wheelbuild" did not complete successfully: exit code: '
