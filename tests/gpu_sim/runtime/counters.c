// What the simulation counted, for counters.py; the fields are in the order of sim.h.
#include "sim.h"

struct counters counters;

void sim_counters(struct counters *found) {
  lock();
  counters.now = host_now();
  *found = counters;
  unlock();
}

void sim_reset_peaks(void) {
  lock();
  counters.pinned_peak = counters.pinned;
  unlock();
}
