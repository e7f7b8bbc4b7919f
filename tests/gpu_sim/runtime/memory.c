// Device and pinned host memory: address space that nobody writes, and the bytes of the card that it takes.
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "sim.h"

#define PAGE (2ul << 20)  // the driver hands out device memory in pages of 2 MiB

static struct block *blocks;  // sorted by address
static size_t filled, room;
static size_t used[MAX_DEVICES];

static size_t place_of(const char *address) {  // of the first block that ends behind the address
  size_t low = 0, high = filled;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (blocks[middle].start + blocks[middle].size <= address) low = middle + 1;
    else high = middle;
  }
  return low;
}

const struct block *block_of(const void *address) {
  size_t place = place_of(address);
  return place < filled && blocks[place].start <= (const char *)address ? &blocks[place] : NULL;
}

static void know(void *start, size_t size, int device) {
  if (filled == room) blocks = realloc(blocks, (room = room ? 2 * room : 1024) * sizeof *blocks);
  size_t place = place_of(start);
  memmove(blocks + place + 1, blocks + place, (filled++ - place) * sizeof *blocks);
  blocks[place] = (struct block){start, size, device};
}

void *reserve(size_t size, int device) {
  void *start = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (start == MAP_FAILED) return NULL;
  know(start, size, device);
  return start;
}

static void know_no_more(void *address) {
  size_t place = place_of(address);
  memmove(blocks + place, blocks + place + 1, (--filled - place) * sizeof *blocks);
}

void release(void *address) {
  struct block gone = *block_of(address);
  know_no_more(address);
  munmap(gone.start, gone.size);
}

static size_t free_bytes(int device) { return card()->bytes - card()->context - used[device]; }

int take_bytes(size_t size, int device) {
  if (size > free_bytes(device)) return 0;
  used[device] += size;
  counters.used += size;
  counters.device_allocations++;
  return 1;
}

void give_bytes(size_t size, int device) {
  used[device] -= size;
  counters.used -= size;
}

static size_t in_pages(size_t size) { return (size + PAGE - 1) / PAGE * PAGE; }

cudaError_t cudaMalloc(void **address, size_t size) {
  lock();
  int device = current_device();
  *address = take_bytes(in_pages(size), device) ? reserve(in_pages(size), device) : NULL;
  unlock();
  return *address ? cudaSuccess : failed(cudaErrorMemoryAllocation);
}

cudaError_t cudaFree(void *address) {
  if (!address) return cudaSuccess;
  lock();
  struct block gone = *block_of(address);
  host_waits_for_device(gone.device);  // as cudaFree does
  forget(gone.start, gone.size);
  give_bytes(gone.size, gone.device);
  release(address);
  unlock();
  return cudaSuccess;
}

static void count_pinned(size_t size) {
  counters.host_allocations++;
  counters.pinned += size;
  if (counters.pinned > counters.pinned_peak) counters.pinned_peak = counters.pinned;
}

cudaError_t cudaHostAlloc(void **address, size_t size, unsigned flags) {
  lock();
  *address = reserve((size + 4095) & ~4095ul, -1);
  if (*address) count_pinned(block_of(*address)->size);
  unlock();
  return *address ? cudaSuccess : failed(cudaErrorMemoryAllocation);
}

cudaError_t cudaFreeHost(void *address) {
  if (!address) return cudaSuccess;
  lock();
  struct block gone = *block_of(address);
  forget(gone.start, gone.size);
  counters.pinned -= gone.size;
  release(address);
  unlock();
  return cudaSuccess;
}

// Whole pages are pinned. Work under way that uses them is an error, for their memory may be given to others.
cudaError_t cudaHostRegister(void *address, size_t size, unsigned flags) {
  char *first = (char *)((size_t)address & ~4095ul), *end = (char *)(((size_t)address + size + 4095) & ~4095ul);
  lock();
  size_t place = place_of(first);
  int is_free = place == filled || blocks[place].start >= end;
  if (is_free) {
    know(first, end - first, -1);
    count_pinned(end - first);
  }
  unlock();
  return is_free ? cudaSuccess : failed(cudaErrorHostMemoryAlreadyRegistered);
}

cudaError_t cudaHostUnregister(void *address) {
  lock();
  const struct block *block = block_of(address);
  if (block) {
    struct block gone = *block;
    check_unused(gone.start, gone.size, "an unregistration");
    forget(gone.start, gone.size);
    counters.pinned -= gone.size;
    know_no_more(gone.start);
  }
  unlock();
  return block ? cudaSuccess : failed(cudaErrorHostMemoryNotRegistered);
}

cudaError_t cudaMemGetInfo(size_t *free, size_t *total) {
  lock();
  *total = card()->bytes;
  *free = free_bytes(current_device());
  unlock();
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *found, const void *address) {
  memset(found, 0, sizeof *found);
  lock();
  const struct block *block = block_of(address);
  found->type = !block ? cudaMemoryTypeUnregistered : block->device < 0 ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
  found->device = block && block->device > 0 ? block->device : 0;
  unlock();
  found->devicePointer = found->hostPointer = (void *)address;
  return cudaSuccess;
}
