/* Module images: which code a fat binary, a cubin or a PTX text has for the emulated device.
 *
 * The layout of fat binaries is the one that toolkit/wheel/fatbin.py describes. A driver takes machine code of the same
 * major capability, else PTX of this capability or an earlier one. PTX whose target ends in `a` is for one capability
 * alone, and one that ends in `f` for those of the same major.
 */
#include "nullgpu.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONTAINER = 0xba55ed50u & 0x7fffffff, WRAPPER = 0x466243b1, PTX = 1, CUBIN = 2 };
enum { HEADER = 64, LZ4 = 0x2000, ZSTD = 0x8000 }; /* of an entry: bytes, and flags of how its payload is packed */
enum { HEAD = 4096 };                              /* bytes of a PTX text in which version and target stand */

typedef struct {
  int number; /* such as 90 */
  char suffix; /* a, f, or 0 */
  int driver; /* the CUDA whose driver takes this version of PTX, as 1000 * major + 10 * minor */
} Target;

static uint64_t read_number(const unsigned char *place, int bytes) {
  uint64_t value = 0;
  memcpy(&value, place, (size_t)bytes);
  return value;
}

/* Unpack the start of an LZ4 block; returns the bytes written. What is damaged ends early. */
static size_t unpack(const unsigned char *from, size_t size, char *to, size_t room) {
  const unsigned char *end = from + size;
  size_t done = 0;
  while (from < end && done < room) {
    unsigned token = *from++;
    size_t literals = token >> 4, matched = (token & 15) + 4, distance;
    if (literals == 15)
      do {
        if (from >= end) return done;
        literals += *from;
      } while (*from++ == 255);
    if (literals > (size_t)(end - from)) return done;
    for (size_t i = 0; i < literals && done < room; i++) to[done++] = (char)from[i];
    from += literals;
    if (end - from < 2) return done;
    distance = read_number(from, 2);
    from += 2;
    if (!distance || distance > done) return done;
    if (matched == 19)
      do {
        if (from >= end) return done;
        matched += *from;
      } while (*from++ == 255);
    for (; matched && done < room; matched--, done++) to[done] = to[done - distance];
  }
  return done;
}

/* CUDA 12.6 has the PTX of 12.5, and since 12.7 the minor versions are one behind. */
static int find_driver(int major, int minor) {
  if (major < 8) return 0;
  return 1000 * (major + 4) + 10 * (major == 8 && minor > 5 ? minor + 1 : minor);
}

/* Read the target of a PTX text, which ends with a zero byte; 0 where there is none. */
static int read_target(const char *text, Target *target) {
  int major = 0, minor = 0;
  const char *version = strstr(text, ".version "), *place = strstr(text, ".target sm_");
  if (!place) return 0;
  if (version && sscanf(version, ".version %d.%d", &major, &minor) != 2) major = 0;
  char *end;
  target->number = (int)strtol(place + strlen(".target sm_"), &end, 10);
  target->suffix = *end == 'a' || *end == 'f' ? *end : 0;
  target->driver = find_driver(major, minor);
  return 1;
}

static int suits(Target target) {
  int capability = ng_device()->capability;
  if (target.suffix == 'a') return target.number == capability;
  if (target.suffix == 'f') return target.number <= capability && target.number / 10 == capability / 10;
  return target.number <= capability;
}
static int runs(int cubin) {
  return cubin <= ng_device()->capability && cubin / 10 == ng_device()->capability / 10;
}

/* The target of PTX in a fat binary: by its text, or by its entry where zstd has packed it. */
static Target read_entry(const unsigned char *entry) {
  Target target = {(int)read_number(entry + 28, 4), 0, 0};
  uint64_t header = read_number(entry + 4, 4), size = read_number(entry + 8, 8), packed = read_number(entry + 16, 4);
  uint64_t flags = header < HEADER ? 0 : read_number(entry + 40, 8);
  char text[HEAD + 1];
  size_t bytes = 0;
  if (flags & ZSTD) return target;
  if (flags & LZ4) bytes = unpack(entry + header, packed < size ? packed : size, text, HEAD);
  else memcpy(text, entry + header, bytes = size < HEAD ? size : HEAD);
  text[bytes] = 0;
  read_target(text, &target);
  return target;
}

static Image inspect_container(const unsigned char *data, const char *group, const char *prefix) {
  const unsigned char *entry = data + read_number(data + 6, 2), *end = entry + read_number(data + 8, 8);
  int cubin = 0, bound = 0;
  Target best = {0, 0, 0};
  for (uint64_t header, size; entry + 32 <= end; entry += header + size) {
    header = read_number(entry + 4, 4), size = read_number(entry + 8, 8);
    if (header < 32 || header > (uint64_t)(end - entry) || size > (uint64_t)(end - entry) - header) break; /* damage */
    int kind = (int)read_number(entry, 2), number = (int)read_number(entry + 28, 4);
    if (kind == CUBIN && runs(number) && number > cubin) cubin = number;
    if (kind != PTX) continue;
    Target target = read_entry(entry);
    if (suits(target) && target.number >= best.number) best = target;
    else if (target.suffix && target.number <= ng_device()->capability) bound = target.number;
  }
  if (cubin) ng_countf(group, 1, "%scubin sm_%d", prefix, cubin);
  else if (best.number) ng_countf(group, 1, "%sPTX compute_%d", prefix, best.number);
  else if (bound) ng_countf(group, 1, "%sPTX for other GPUs alone, sm_%da", prefix, bound);
  else ng_countf(group, 1, "%snone", prefix);
  if (cubin) return (Image){HAS_CUBIN, 0};
  if (best.number) return (Image){NEEDS_JIT, best.driver};
  return (Image){bound ? BOUND_PTX : NO_CODE, 0};
}

/* The GPU of machine code: since ABI version 8 it stands one byte higher in the flags. */
static int read_cubin(const unsigned char *elf) {
  unsigned flags = (unsigned)read_number(elf + 48, 4);
  return (int)(elf[8] >= 8 ? flags >> 8 : flags) & 0xff;
}

Image ng_inspect_registered(const void *data) {
  if ((read_number(data, 4) & 0x7fffffff) != CONTAINER) return (Image){NO_CODE, 0};
  return inspect_container(data, "fat binary", "");
}

Image ng_inspect_loaded(const void *image) {
  const unsigned char *data = image;
  if (read_number(data, 4) == WRAPPER) memcpy(&data, data + 8, sizeof data);
  if ((read_number(data, 4) & 0x7fffffff) == CONTAINER) return inspect_container(data, "module", "fat binary: ");
  if (!memcmp(data, "\177ELF", 4)) {
    int number = read_cubin(data);
    ng_countf("module", 1, "cubin sm_%d", number);
    return (Image){runs(number) ? HAS_CUBIN : NO_CODE, 0};
  }
  Target target;
  if (!read_target((const char *)data, &target)) return (Image){INVALID, 0};
  ng_countf("module", 1, "PTX sm_%d%.1s", target.number, &target.suffix);
  return suits(target) ? (Image){NEEDS_JIT, target.driver} : (Image){target.suffix ? BOUND_PTX : NO_CODE, 0};
}
