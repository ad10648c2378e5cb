// SPDX-License-Identifier: Apache-2.0
// libcdsprpc.so's shared memory (rpcmem.h of FastRPC, BSD): buffers that a program and the HTP both see, each a file in
// memory, whose descriptor QnnMem_register takes. Its remote calls to the DSP are not here.
#if defined(__linux__)  // CMake builds it there alone
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

struct buffer {
  void* data;
  size_t size;
  int fd;
  struct buffer* next;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct buffer* buffers;

EXPORT void rpcmem_init(void) {}
EXPORT void rpcmem_deinit(void) {}

// Heaps and flags say where a phone takes the memory from; here all of it is alike.
EXPORT void* rpcmem_alloc2(int heapid, uint32_t flags, size_t size) {
  struct buffer* made;
  (void)heapid;
  (void)flags;
  if (!size || size > (size_t)1 << 40 || !(made = malloc(sizeof *made))) return NULL;
  made->size = size;
  made->data = MAP_FAILED;
  made->fd = memfd_create("rpcmem", MFD_CLOEXEC);
  if (made->fd >= 0 && !ftruncate(made->fd, (off_t)size))
    made->data = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, made->fd, 0);
  if (made->data == MAP_FAILED) {
    if (made->fd >= 0) close(made->fd);
    free(made);
    return NULL;
  }
  pthread_mutex_lock(&mutex);
  made->next = buffers;
  buffers = made;
  pthread_mutex_unlock(&mutex);
  return made->data;
}

EXPORT void* rpcmem_alloc(int heapid, uint32_t flags, int size) {
  return size > 0 ? rpcmem_alloc2(heapid, flags, (size_t)size) : NULL;
}

// The descriptor of a buffer, which stays the library's; -1 for what is none.
EXPORT int rpcmem_to_fd(void* data) {
  int fd = -1;
  pthread_mutex_lock(&mutex);
  for (const struct buffer* each = buffers; each; each = each->next)
    if (each->data == data) fd = each->fd;
  pthread_mutex_unlock(&mutex);
  return fd;
}

// What is no buffer, or was freed, is left alone.
EXPORT void rpcmem_free(void* data) {
  struct buffer *found = NULL, **place;
  pthread_mutex_lock(&mutex);
  for (place = &buffers; *place && (*place)->data != data; place = &(*place)->next) continue;
  if ((found = *place)) *place = found->next;
  pthread_mutex_unlock(&mutex);
  if (!found) return;
  munmap(found->data, found->size);
  close(found->fd);
  free(found);
}
#endif
