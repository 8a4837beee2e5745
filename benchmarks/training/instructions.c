// A plugin of QEMU that counts the instructions of the emulated program, and prints their number at its end.
//
// The declarations are those of QEMU's plugin interface, version 1, whose header Debian's packages lack.
#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define EXPORTED __attribute__((visibility("default")))

typedef uint64_t Id;
struct Info;
struct Block;
enum Operation { ADD = 0 };

void qemu_plugin_register_vcpu_tb_trans_cb(Id id, void (*translated)(Id, struct Block *));
size_t qemu_plugin_tb_n_insns(const struct Block *block);
void qemu_plugin_register_vcpu_tb_exec_inline(struct Block *block, enum Operation operation, void *number, uint64_t by);
void qemu_plugin_register_atexit_cb(Id id, void (*ended)(Id, void *), void *context);

EXPORTED int qemu_plugin_version = 1;

// Threads add to it without a lock, so run the program with one.
static uint64_t count;

static void count_block(Id id, struct Block *block) {
  (void)id;
  qemu_plugin_register_vcpu_tb_exec_inline(block, ADD, &count, qemu_plugin_tb_n_insns(block));
}

static void print(Id id, void *context) {
  (void)id, (void)context;
  fprintf(stderr, "\ninstructions: %" PRIu64 "\n", count);
}

EXPORTED int qemu_plugin_install(Id id, const struct Info *info, int argc, char **argv) {
  (void)info, (void)argc, (void)argv;
  qemu_plugin_register_vcpu_tb_trans_cb(id, count_block);
  qemu_plugin_register_atexit_cb(id, print, NULL);
  return 0;
}
