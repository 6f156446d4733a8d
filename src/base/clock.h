/* SPDX-License-Identifier: Apache-2.0 */
/* Monotonic time. All deadlines and durations inside Echelon are nanoseconds of this clock. */
#ifndef ECH_BASE_CLOCK_H
#define ECH_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

#define ECH_NS_PER_US INT64_C(1000)
#define ECH_NS_PER_MS INT64_C(1000000)
#define ECH_NS_PER_S  INT64_C(1000000000)

static inline int64_t ech_now_ns(void)
{
    struct timespec ts;
    (void)clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * ECH_NS_PER_S + ts.tv_nsec;
}

#endif
