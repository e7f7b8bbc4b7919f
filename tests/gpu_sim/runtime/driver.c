// What torch asks of the driver by name: device numbers, and the virtual memory of expandable segments.
#include <string.h>
#include "cuda.h"
#include "sim.h"

static CUresult error_string(CUresult error, const char **text) {
  *text = "error of the simulated CUDA driver";
  return CUDA_SUCCESS;
}
static CUresult device_get(CUdevice *device, int ordinal) { *device = ordinal; return CUDA_SUCCESS; }
static CUresult device_attribute(int *value, CUdevice_attribute attribute, CUdevice device) {
  *value = attribute != CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED;
  return CUDA_SUCCESS;
}
static CUresult granularity(size_t *size, const CUmemAllocationProp *what, CUmemAllocationGranularity_flags which) {
  *size = 2 << 20;
  return CUDA_SUCCESS;
}
static CUresult address_reserve(CUdeviceptr *address, size_t size, size_t alignment, CUdeviceptr wanted,
                                unsigned long long flags) {
  lock();
  *address = (CUdeviceptr)reserve(size, current_device());
  unlock();
  return *address ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
static CUresult address_free(CUdeviceptr address, size_t size) {
  lock();
  forget((void *)address, size);
  release((void *)address);
  unlock();
  return CUDA_SUCCESS;
}
// A handle is the bytes of it and its device.
static CUresult create(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *what,
                       unsigned long long flags) {
  lock();
  int device = what->location.id, taken = take_bytes(size, device);
  *handle = (CUmemGenericAllocationHandle)(size * MAX_DEVICES + device);
  unlock();
  return taken ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
static CUresult drop(CUmemGenericAllocationHandle handle) {
  lock();
  give_bytes(handle / MAX_DEVICES, handle % MAX_DEVICES);
  unlock();
  return CUDA_SUCCESS;
}
static CUresult map(CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                    unsigned long long flags) {
  return CUDA_SUCCESS;
}
static CUresult set_access(CUdeviceptr address, size_t size, const CUmemAccessDesc *how, size_t count) {
  return CUDA_SUCCESS;
}
static CUresult unmap(CUdeviceptr address, size_t size) {
  lock();
  forget((void *)address, size);
  unlock();
  return CUDA_SUCCESS;
}
static CUresult unsupported(void) { return CUDA_ERROR_NOT_SUPPORTED; }

static const struct { const char *name; void *function; } functions[] = {
    {"cuGetErrorString", error_string},
    {"cuDeviceGet", device_get},
    {"cuDeviceGetAttribute", device_attribute},
    {"cuMemGetAllocationGranularity", granularity},
    {"cuMemAddressReserve", address_reserve},
    {"cuMemAddressFree", address_free},
    {"cuMemCreate", create},
    {"cuMemRelease", drop},
    {"cuMemMap", map},
    {"cuMemSetAccess", set_access},
    {"cuMemUnmap", unmap},
};

cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version,
                                             unsigned long long flags, enum cudaDriverEntryPointQueryResult *result) {
  *function = unsupported;
  for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
    if (!strcmp(name, functions[i].name)) *function = functions[i].function;
  if (result) *result = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}
