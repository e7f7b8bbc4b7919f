// Kernels compute nothing. They are counted, and take a rough time by their size, attention by its FLOPs.
#include <stdlib.h>
#include <string.h>
#include "sim.h"

#define SLOTS (1u << 18)
#define BYTES_A_THREAD 40.0  // a few numbers read and written

struct kernel { const void *function; const char *name; };

static struct kernel kernels[SLOTS];  // by the hash of their function

static unsigned slot_of(const void *function) {
  unsigned slot = ((size_t)function >> 4) * 2654435761u & (SLOTS - 1);
  while (kernels[slot].function && kernels[slot].function != function) slot = (slot + 1) & (SLOTS - 1);
  return slot;
}

void **__cudaRegisterFatBinary(void *binary) {
  static void *handles[1 << 14];
  static int next;
  return &handles[next++ & ((1 << 14) - 1)];
}
void __cudaRegisterFatBinaryEnd(void **handle) {}
void __cudaUnregisterFatBinary(void **handle) {}
void __cudaRegisterVar(void **handle, char *host, char *address, const char *name, int external, size_t size,
                       int constant, int global) {}
char __cudaInitModule(void **handle) { return 0; }
void __cudaRegisterFunction(void **handle, const char *function, char *device_function, const char *name, int limit,
                            void *thread, void *block, void *block_dim, void *grid_dim, int *warp) {
  kernels[slot_of(function)] = (struct kernel){function, name};
}

struct configuration { dim3 grid, block; size_t shared; void *stream; };
static __thread struct configuration stack[8];
static __thread int depth;

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, struct CUstream_st *stream) {
  stack[depth++ & 7] = (struct configuration){grid, block, shared, stream};
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream) {
  struct configuration top = stack[--depth & 7];
  *grid = top.grid;
  *block = top.block;
  *shared = top.shared;
  *(void **)stream = top.stream;
  return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *function) {
  *kernel = (cudaKernel_t)function;
  return cudaSuccess;
}

// Blocks of 64 queries by heads by batch, each against all keys, half of them masked.
static double attention_seconds(const char *name, dim3 grid) {
  const char *width = strstr(name, "kernel_traitsILi");
  double queries = 64.0 * grid.x, flops = 2.0 * grid.y * grid.z * queries * queries * (width ? atoi(width + 16) : 128);
  int backward = strstr(name, "bwd") || strstr(name, "backward") || strstr(name, "cutlassB");
  return (backward ? 2.5 : 1.0) * flops / (0.6 * card()->half);
}

static double seconds_of(const char *name, dim3 grid, dim3 block) {
  if (strstr(name, "kernel_traitsILi") || strstr(name, "fmha_cutlass")) return attention_seconds(name, grid);
  return BYTES_A_THREAD * grid.x * grid.y * grid.z * block.x * block.y * block.z / card()->stream;
}

static cudaError_t launch(const void *function, dim3 grid, dim3 block, cudaStream_t handle) {
  lock();
  const char *name = kernels[slot_of(function)].name;
  counters.launches++;
  host_works(card()->launch);
  enqueue(stream_of(handle), card()->launch / 2 + seconds_of(name ? name : "", grid, block));
  unlock();
  return cudaSuccess;
}

cudaError_t cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **arguments, size_t shared,
                             cudaStream_t stream) {
  return launch(function, grid, block, stream);
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments, size_t shared,
                               cudaStream_t stream) {
  return launch(kernel, grid, block, stream);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *how, const void *function, void **arguments) {
  return launch(function, how->gridDim, how->blockDim, how->stream);
}

// Kernels run as they were compiled for the newest architecture that the card still runs; CUB refuses any other number.
static int compiled_for(int capability) {
  static const int architectures[] = {120, 100, 90, 86, 80, 75};  // torch.cuda.get_arch_list() of the wheel
  for (size_t i = 0; i < sizeof architectures / sizeof *architectures; i++)
    if (architectures[i] <= capability) return architectures[i];
  return capability;
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *found, const void *function) {
  memset(found, 0, sizeof *found);
  found->maxThreadsPerBlock = 1024;
  found->ptxVersion = found->binaryVersion = compiled_for(card()->capability);
  found->numRegs = 32;
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void *function, enum cudaFuncAttribute attribute, int value) {
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *count, const void *function, int block,
                                                                   size_t shared, unsigned flags) {
  *count = 2;
  return cudaSuccess;
}

// Work of a library that the simulation leaves out: one launch of so many FLOPs in half precision.
void sim_compute(void *handle, double flops) {
  lock();
  counters.launches++;
  host_works(card()->launch);
  enqueue(stream_of(handle), card()->launch / 2 + flops / card()->half);
  unlock();
}
