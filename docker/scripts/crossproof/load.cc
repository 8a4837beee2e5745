// Loads the library that is given, calls its function, and prints the version of the C library and what CUDA answers.
#include <dlfcn.h>
#include <gnu/libc-version.h>

#include <cstdio>

int main(int count, char **arguments) {
  void *library = count == 2 ? dlopen(arguments[1], RTLD_NOW) : nullptr;
  void *add = library ? dlsym(library, "toolkit_add") : nullptr;
  if (!add) {
    std::fprintf(stderr, "error: %s\n", count == 2 ? dlerror() : "one library is needed");
    return 1;
  }
  using Add = int (*)(const void *, const void *, float *, int);
  std::printf("%s %d\n", gnu_get_libc_version(), reinterpret_cast<Add>(add)(nullptr, nullptr, nullptr, 0));
  return 0;
}
