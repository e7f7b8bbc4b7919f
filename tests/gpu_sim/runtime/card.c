// The simulated card and the functions of the runtime that ask for one.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "sim.h"

#define RUNTIME_VERSION 13000

static struct card the_card;
static __thread int device = 0;

static double number(const char *name, double otherwise) {
  const char *text = getenv(name);
  return text ? atof(text) : otherwise;
}

// At the start, and once more in a forked process that stands for another card.
__attribute__((constructor)) void sim_read_card(void) {
  const char *name = getenv("SIM_GPU_NAME");
  snprintf(the_card.name, sizeof the_card.name, "%s", name ? name : "Simulated GPU");
  the_card.count = (int)number("SIM_GPU_COUNT", 1);
  if (the_card.count < 1 || the_card.count > MAX_DEVICES) abort();
  the_card.capability = (int)number("SIM_GPU_CAPABILITY", 80);
  the_card.bytes = (size_t)number("SIM_GPU_BYTES", 80e9);
  the_card.context = (size_t)number("SIM_GPU_CONTEXT", 500 << 20);
  the_card.half = number("SIM_GPU_HALF", 2e14);
  the_card.single = number("SIM_GPU_SINGLE", 2e13);
  the_card.stream = number("SIM_GPU_STREAM", 1e12);
  the_card.link = number("SIM_GPU_LINK", 2e10);
  the_card.launch = number("SIM_GPU_LAUNCH", 5e-6);
}

const struct card *card(void) { return &the_card; }
int current_device(void) { return device; }

cudaError_t cudaGetDeviceCount(int *count) { *count = the_card.count; return cudaSuccess; }
cudaError_t cudaGetDevice(int *found) { *found = device; return cudaSuccess; }
cudaError_t cudaSetDevice(int wanted) {
  if (wanted < 0 || wanted >= the_card.count) return failed(cudaErrorInvalidDevice);
  device = wanted;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int *version) { *version = RUNTIME_VERSION; return cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int *version) { *version = RUNTIME_VERSION; return cudaSuccess; }

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *found, int which) {
  memset(found, 0, sizeof *found);
  snprintf(found->name, sizeof found->name, "%s", the_card.name);
  found->totalGlobalMem = the_card.bytes;
  found->major = the_card.capability / 10;
  found->minor = the_card.capability % 10;
  found->multiProcessorCount = 132;
  found->warpSize = 32;
  found->maxThreadsPerBlock = found->maxThreadsDim[0] = found->maxThreadsDim[1] = 1024;
  found->maxThreadsDim[2] = 64;
  found->maxGridSize[0] = 2147483647;
  found->maxGridSize[1] = found->maxGridSize[2] = 65535;
  found->regsPerBlock = found->regsPerMultiprocessor = found->totalConstMem = 65536;
  found->sharedMemPerBlock = 49152;
  found->sharedMemPerBlockOptin = the_card.capability >= 90 ? 232448 : 101376;
  found->sharedMemPerMultiprocessor = found->sharedMemPerBlockOptin + 1024;
  found->maxThreadsPerMultiProcessor = 2048;
  found->maxBlocksPerMultiProcessor = 32;
  found->l2CacheSize = 50 << 20;
  found->memoryBusWidth = 5120;
  found->textureAlignment = 512;
  found->unifiedAddressing = 1;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int which) {
  struct cudaDeviceProp of;
  cudaGetDeviceProperties(&of, which);
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor: *value = of.major; break;
    case cudaDevAttrComputeCapabilityMinor: *value = of.minor; break;
    case cudaDevAttrMultiProcessorCount: *value = of.multiProcessorCount; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = (int)of.sharedMemPerBlock; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = (int)of.sharedMemPerBlockOptin; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = of.maxThreadsPerMultiProcessor; break;
    case cudaDevAttrMaxThreadsPerBlock: *value = of.maxThreadsPerBlock; break;
    case cudaDevAttrMaxGridDimX: *value = of.maxGridSize[0]; break;
    case cudaDevAttrWarpSize: *value = of.warpSize; break;
    default: *value = 1;
  }
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *text, int size, int which) {
  snprintf(text, size, "0000:%02x:00.0", which);
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int *can, int one, int other) { *can = 0; return cudaSuccess; }
cudaError_t cudaDeviceEnablePeerAccess(int other, unsigned flags) { return cudaSuccess; }
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int which) { *pool = NULL; return cudaSuccess; }

static __thread cudaError_t last_error = cudaSuccess;  // until somebody asks: calls that succeed leave it
cudaError_t failed(cudaError_t error) { return last_error = error; }
cudaError_t cudaPeekAtLastError(void) { return last_error; }
cudaError_t cudaGetLastError(void) {
  cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}
const char *cudaGetErrorString(cudaError_t error) { return "error of the simulated CUDA runtime"; }
const char *cudaGetErrorName(cudaError_t error) { return "simulated"; }
cudaError_t cudaProfilerStart(void) { return cudaSuccess; }
cudaError_t cudaProfilerStop(void) { return cudaSuccess; }
