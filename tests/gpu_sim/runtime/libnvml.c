// The management library: torch asks it which processes use the card when memory runs out.
#define NOT_FOUND 999
int nvmlInit_v2(void) { return 0; }
int nvmlSystemGetCudaDriverVersion_v2(int *version) { *version = 13000; return 0; }
int nvmlDeviceGetHandleByPciBusId_v2(const char *id, void **device) { *device = (void *)1; return 0; }
int nvmlDeviceGetHandleByIndex_v2(int index, void **device) { *device = (void *)1; return 0; }
int nvmlDeviceGetComputeRunningProcesses(void *device, unsigned *count, void *found) { *count = 0; return 0; }
int nvmlDeviceGetNvLinkRemoteDeviceType(void) { return NOT_FOUND; }
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void) { return NOT_FOUND; }
int nvmlDeviceGetGpuFabricInfoV(void) { return 0; }
