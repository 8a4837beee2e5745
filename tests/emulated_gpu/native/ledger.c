/* The ledger: counts by group and name, written as JSON. One lock is enough: a step makes some thousand entries. */
#include "nullgpu.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Entry {
  const char *group, *name;
  long count;
  struct Entry *next_in_slot, *next;
} Entry;

enum { SLOTS = 4096 };
static Entry *slots[SLOTS], *entries;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static unsigned hash(const char *text, unsigned value) {
  while (*text) value = (value ^ (unsigned char)*text++) * 16777619u;
  return value;
}

void ng_count(const char *group, const char *name, long amount) {
  unsigned slot = hash(name, hash(group, 2166136261u)) % SLOTS;
  pthread_mutex_lock(&lock);
  Entry *entry = slots[slot];
  while (entry && (strcmp(entry->name, name) || strcmp(entry->group, group))) entry = entry->next_in_slot;
  if (!entry) {
    entry = calloc(1, sizeof *entry);
    *entry = (Entry){strdup(group), strdup(name), 0, slots[slot], entries};
    slots[slot] = entries = entry;
  }
  entry->count += amount;
  pthread_mutex_unlock(&lock);
}

void ng_countf(const char *group, long amount, const char *format, ...) {
  char name[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(name, sizeof name, format, arguments);
  va_end(arguments);
  ng_count(group, name, amount);
}

CUresult ng_refuse(CUresult error, const char *format, ...) {
  char name[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(name, sizeof name, format, arguments);
  va_end(arguments);
  ng_count("refused", name, 1);
  return error;
}

static void write_text(FILE *file, const char *text) {
  fputc('"', file);
  for (; *text; text++) {
    if (*text == '"' || *text == '\\') fputc('\\', file);
    fputc((unsigned char)*text < ' ' ? ' ' : *text, file);
  }
  fputc('"', file);
}

/* Write all counts since the start as {group: {name: count}}; returns 0, or -1 where the file cannot be written. */
int nullgpu_write(const char *path) {
  FILE *file = fopen(path, "w");
  if (!file) return -1;
  pthread_mutex_lock(&lock);
  fputc('{', file);
  const char *groups[64];
  int count = 0;
  for (Entry *entry = entries; entry; entry = entry->next) {
    int known = 0;
    while (known < count && strcmp(groups[known], entry->group)) known++;
    if (known < count || count == 64) continue;
    groups[count++] = entry->group;
    fputs(count > 1 ? ",\n" : "", file);
    write_text(file, entry->group);
    fputs(": {", file);
    int first = 1;
    for (Entry *other = entry; other; other = other->next) {
      if (strcmp(other->group, entry->group)) continue;
      fputs(first ? "" : ", ", file);
      first = 0;
      write_text(file, other->name);
      fprintf(file, ": %ld", other->count);
    }
    fputc('}', file);
  }
  fputs("}\n", file);
  pthread_mutex_unlock(&lock);
  return fclose(file);
}

/* Programs ask whether libcuda.so.1 has this symbol, to tell an emulated device from a real one. */
int nullgpu_emulated(void) { return 1; }
