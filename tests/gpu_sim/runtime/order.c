// Which stream reads and writes which memory, and whether what ran before it is ordered before it.
//
// Every stream counts its work, and knows how much of the other streams' work is ordered before its next (by events, and
// by what the host waited for). Two uses of the same memory by two streams, one of them a write, are an error unless the
// earlier one is ordered before the later one, whatever the simulated clock says. Copies report themselves; kernels are
// reported from Python (touched.py), for the runtime does not see what their arguments mean.
#include <stdio.h>
#include <string.h>
#include "sim.h"

#define KEPT 65536
#define TEXT 8192

struct use { const char *start, *end; int stream, writes; unsigned count; const char *what; };

unsigned seen_by_host[MAX_STREAMS];
static struct use uses[KEPT];
static int filled, watching;
static char errors[TEXT];

void merge_seen(unsigned *into, const unsigned *from) {
  for (int i = 0; i < MAX_STREAMS; i++)
    if (into[i] < from[i]) into[i] = from[i];
}

static void report(const struct use *before, const struct stream *stream, int writes, const char *what) {
  counters.order_errors++;
  size_t length = strlen(errors);
  snprintf(errors + length, TEXT - length, "%s %s memory on stream %d while %s %s it on stream %d\n", what,
           writes ? "writes" : "reads", stream->id, before->what, before->writes ? "writes" : "reads", before->stream);
}

static int is_ordered(const struct use *before, const struct stream *stream) {
  return before->stream == stream->id || before->count <= stream->seen[before->stream];
}

void touch(struct stream *stream, const void *start, size_t size, int writes, const char *what) {
  if (!watching || !size) return;
  const char *first = start, *end = first + size;
  int same = -1, kept = 0;
  for (int i = 0; i < filled; i++) {
    struct use *use = &uses[i];
    if (use->count <= seen_by_host[use->stream]) continue;  // it is over: nothing can meet it
    if (use->start < end && first < use->end && (use->writes || writes) && !is_ordered(use, stream))
      report(use, stream, writes, what);
    if (use->start == first && use->end == end && use->stream == stream->id && use->writes == writes) same = kept;
    uses[kept++] = *use;
  }
  filled = kept;
  if (same < 0 && filled < KEPT) same = filled++;
  if (same >= 0) uses[same] = (struct use){first, end, stream->id, writes, stream->seen[stream->id], what};
}

void check_unused(const void *start, size_t size, const char *what) {
  if (!watching) return;
  for (int i = 0; i < filled; i++) {
    struct use *use = &uses[i];
    if (use->count <= seen_by_host[use->stream] || use->end <= (char *)start || use->start >= (char *)start + size) continue;
    counters.order_errors++;
    size_t length = strlen(errors);
    snprintf(errors + length, TEXT - length, "%s ends memory that %s %s on stream %d\n", what, use->what,
             use->writes ? "writes" : "reads", use->stream);
  }
}

void forget(const void *start, size_t size) {
  int kept = 0;
  for (int i = 0; i < filled; i++)
    if (uses[i].end <= (const char *)start || uses[i].start >= (const char *)start + size) uses[kept++] = uses[i];
  filled = kept;
}

void sim_watch_order(int on) {
  lock();
  watching = on;
  filled = 0;
  unlock();
}

void sim_touched(void *handle, const void *start, size_t size, int writes, const char *what) {
  lock();
  touch(stream_of(handle), start, size, writes, what);
  unlock();
}

const char *sim_order_errors(void) { return errors; }
