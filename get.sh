P=/root/.pyenv/versions/3.7.16/bin/python3.7
g(){ nice -n 10 python3 -m pip download -q --no-deps --only-binary=:all: "$@" -d . || echo FAIL "$@"; }
g --python-version 37 --platform manylinux2010_x86_64 tensorflow==1.15.5
g --python-version 38 --platform manylinux2010_x86_64 tensorflow==2.3.4
g transformers==4.46.3
g tensorflow-datasets
g --python-version 311 --platform manylinux2014_x86_64 ray
g tf-models-official==2.11.0
g tf-object-detection-api 
g tf-slim
g xla==0 2>/dev/null
ls -la
