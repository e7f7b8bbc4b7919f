// Copies take time on their stream. Small ones really copy, for the host may read what they bring.
#include <string.h>
#include "sim.h"

#define COPIED (1u << 20)

static int is_on_device(const void *address) {
  const struct block *block = block_of(address);
  return block && block->device >= 0;
}

static void cross_link(struct stream *stream, size_t size, long *direction) {
  enqueue(stream, card()->launch + size / card()->link);
  *direction += size;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size, enum cudaMemcpyKind kind, cudaStream_t handle) {
  lock();
  struct stream *stream = stream_of(handle);
  int there = is_on_device(to), here = is_on_device(from);
  int pageable = (!there && !block_of(to)) || (!here && !block_of(from));
  counters.copies++;
  host_works(card()->launch);
  if (there && here) enqueue(stream, card()->launch + 2.0 * size / card()->stream);
  else cross_link(stream, size, there ? &counters.to_device : &counters.to_host);
  touch(stream, from, size, 0, "a copy");
  touch(stream, to, size, 1, "a copy");
  if (size <= COPIED) memmove(to, from, size);
  if (pageable) host_waits_for_stream(stream);
  unlock();
  return cudaSuccess;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t size, enum cudaMemcpyKind kind) {
  cudaMemcpyAsync(to, from, size, kind, NULL);
  return cudaStreamSynchronize(NULL);
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                              size_t height, enum cudaMemcpyKind kind, cudaStream_t handle) {
  lock();
  counters.copies++;
  host_works(card()->launch);
  enqueue(stream_of(handle), card()->launch + 2.0 * width * height / card()->stream);
  unlock();
  return cudaSuccess;
}

cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device, size_t size,
                                cudaStream_t handle) {
  lock();
  counters.copies++;
  host_works(card()->launch);
  enqueue(stream_of(handle), card()->launch + size / card()->link);
  unlock();
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t size, cudaStream_t handle) {
  lock();
  struct stream *stream = stream_of(handle);
  counters.launches++;
  host_works(card()->launch);
  enqueue(stream, card()->launch + size / card()->stream);
  touch(stream, to, size, 1, "a memset");
  unlock();
  return cudaSuccess;
}
cudaError_t cudaMemset(void *to, int value, size_t size) { return cudaMemsetAsync(to, value, size, NULL); }
cudaError_t cudaMemcpyToSymbol(const void *symbol, const void *from, size_t size, size_t offset,
                               enum cudaMemcpyKind kind) {
  return cudaSuccess;
}
cudaError_t cudaGetSymbolAddress(void **address, const void *symbol) {
  static char anything[1 << 16];
  *address = anything;
  return cudaSuccess;
}
