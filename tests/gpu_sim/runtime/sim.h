// What the parts of the simulated CUDA runtime know of each other. One lock, one simulated clock, no values.
#pragma once
#include <stddef.h>
#include "cuda_runtime_api.h"

#define MAX_DEVICES 16
#define MAX_STREAMS 512

// card.c: the simulated card, read from SIM_GPU_* at the first call.
struct card {
  char name[128];
  int count;          // cards of this kind
  int capability;     // 90 is 9.0
  size_t bytes;       // of each
  size_t context;     // of each, taken by the CUDA context from the start
  double half, single;       // FLOP/s of matrix products
  double stream, link;       // bytes/s of device memory, and to host memory
  double launch;             // seconds the host takes for a launch, and a kernel at least
};
const struct card *card(void);
int current_device(void);
cudaError_t failed(cudaError_t error);  // the error, kept for cudaGetLastError

// memory.c
struct block { char *start; size_t size; int device; /* -1: pinned host memory */ };
const struct block *block_of(const void *address);  // NULL: ordinary host memory; call it locked
void *reserve(size_t size, int device);              // address space only
void release(void *address);
int take_bytes(size_t size, int device);             // 0 when the card has no room
void give_bytes(size_t size, int device);

// streams.c. All but lock and unlock are called locked, where the name does not say `host`.
struct stream { int id, device; double ready; unsigned seen[MAX_STREAMS]; };
void lock(void);
void unlock(void);
double host_now(void);
void host_works(double seconds);
struct stream *stream_of(cudaStream_t handle);
void enqueue(struct stream *stream, double seconds);
void host_waits_for_device(int device);
void host_waits_for_stream(struct stream *stream);

// order.c: reads and writes of memory by streams, and the errors among them.
void touch(struct stream *stream, const void *start, size_t size, int writes, const char *what);
void check_unused(const void *start, size_t size, const char *what);  // an error where the host has not waited
void forget(const void *start, size_t size);
void merge_seen(unsigned *into, const unsigned *from);
extern unsigned seen_by_host[MAX_STREAMS];

// counters.c
struct counters {
  double now, busy, waited;
  long launches, copies, synchronisations, device_allocations, host_allocations;
  long used, pinned, pinned_peak, to_host, to_device, order_errors;
};
extern struct counters counters;
