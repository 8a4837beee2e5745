// Stands where an image for ARM has its Python, and runs that by QEMU: then whatever starts Python starts this.
#include <stdlib.h>
#include <unistd.h>

int main(int count, char **words) {
  char *given[] = {"qemu-aarch64", "-cpu", "max", "-0", words[0], "/emulated/python"};
  char **argv = calloc(count + 6, sizeof *argv);
  for (int i = 0; i < 6; i++)
    argv[i] = given[i];
  for (int i = 1; i < count; i++)
    argv[i + 5] = words[i];
  execv("/emulated/qemu-aarch64", argv);
  return 127;
}
