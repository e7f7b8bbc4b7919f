// The simulated clock, streams and events. The host's time is what its calls take, so every run has the same times.
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "sim.h"

#define ASKING 1e-6  // seconds of a call that launches nothing; polling an event comes to an end by it

struct CUevent_st { double time; unsigned seen[MAX_STREAMS]; };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct stream streams[MAX_STREAMS];  // the first MAX_DEVICES are the devices' default streams
static int made = MAX_DEVICES;
static double now;

void lock(void) { pthread_mutex_lock(&mutex); }
void unlock(void) { pthread_mutex_unlock(&mutex); }
double host_now(void) { return now; }
void host_works(double seconds) { now += seconds; }

struct stream *stream_of(cudaStream_t handle) {
  struct stream *stream = (struct stream *)handle;
  if (stream >= streams && stream < streams + MAX_STREAMS) return stream;
  stream = &streams[current_device()];  // NULL, and the legacy and per-thread default streams
  stream->id = stream->device = current_device();
  return stream;
}

void enqueue(struct stream *stream, double seconds) {
  merge_seen(stream->seen, seen_by_host);
  stream->seen[stream->id]++;
  if (stream->ready < now) stream->ready = now;
  stream->ready += seconds;
  if (stream->id < MAX_DEVICES) counters.busy += seconds;
}

static void host_waits_until(double time, const unsigned *seen) {
  merge_seen(seen_by_host, seen);
  if (time <= now) return;
  counters.waited += time - now;
  now = time;
}

void host_waits_for_stream(struct stream *stream) {
  counters.synchronisations++;
  host_waits_until(stream->ready, stream->seen);
}

void host_waits_for_device(int device) {
  for (int i = 0; i < made; i++)
    if (streams[i].device == device) host_waits_until(streams[i].ready, streams[i].seen);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *handle, unsigned flags, int priority) {
  lock();
  if (made == MAX_STREAMS) abort();
  struct stream *stream = &streams[made];
  stream->id = made++;
  stream->device = current_device();
  *handle = (cudaStream_t)stream;
  unlock();
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *handle, unsigned flags) {
  return cudaStreamCreateWithPriority(handle, flags, 0);
}
cudaError_t cudaStreamCreate(cudaStream_t *handle) { return cudaStreamCreateWithPriority(handle, 0, 0); }
cudaError_t cudaStreamDestroy(cudaStream_t handle) { return cudaSuccess; }
cudaError_t cudaStreamGetPriority(cudaStream_t handle, int *priority) { *priority = 0; return cudaSuccess; }

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  lock();
  host_waits_for_stream(stream_of(handle));
  unlock();
  return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  lock();
  host_works(ASKING);
  struct stream *stream = stream_of(handle);
  int done = stream->ready <= now;
  if (done) merge_seen(seen_by_host, stream->seen);
  unlock();
  return done ? cudaSuccess : failed(cudaErrorNotReady);
}

cudaError_t cudaDeviceSynchronize(void) {
  lock();
  counters.synchronisations++;
  host_waits_for_device(current_device());
  unlock();
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned flags) {
  lock();
  host_works(ASKING);
  struct stream *stream = stream_of(handle);
  if (stream->ready < event->time) stream->ready = event->time;
  merge_seen(stream->seen, event->seen);
  unlock();
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
  *event = calloc(1, sizeof **event);
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t *event) { return cudaEventCreateWithFlags(event, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t event) { free(event); return cudaSuccess; }

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t handle, unsigned flags) {
  lock();
  host_works(ASKING);
  struct stream *stream = stream_of(handle);
  merge_seen(stream->seen, seen_by_host);
  memcpy(event->seen, stream->seen, sizeof event->seen);
  event->time = stream->ready > now ? stream->ready : now;
  unlock();
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t handle) { return cudaEventRecordWithFlags(event, handle, 0); }

cudaError_t cudaEventQuery(cudaEvent_t event) {
  lock();
  host_works(ASKING);
  int done = event->time <= now;
  if (done) merge_seen(seen_by_host, event->seen);
  unlock();
  return done ? cudaSuccess : failed(cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  lock();
  counters.synchronisations++;
  host_waits_until(event->time, event->seen);
  unlock();
  return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t start, cudaEvent_t end) {
  *milliseconds = (float)(1e3 * (end->time - start->time));
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, enum cudaStreamCaptureStatus *status) {
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t handle, enum cudaStreamCaptureStatus *status, unsigned long long *id,
                                     cudaGraph_t *graph, const cudaGraphNode_t **nodes,
                                     const cudaGraphEdgeData **edges, size_t *count) {
  *status = cudaStreamCaptureStatusNone;
  if (id) *id = 0;
  return cudaSuccess;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode) { return cudaSuccess; }
cudaError_t cudaStreamAddCallback(cudaStream_t handle, cudaStreamCallback_t call, void *data, unsigned flags) {
  call(handle, cudaSuccess, data);
  return cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t call, void *data) {
  call(data);
  return cudaSuccess;
}
