/* SPDX-License-Identifier: Apache-2.0 */
/* Futexes: see futex.h. */
#include "src/base/os/futex.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "src/base/clock.h"

bool ech_os_futex_wait(const uint32_t *const word, const uint32_t expected,
                       const int64_t deadline_ns)
{
    struct timespec at;
    const struct timespec *timeout = NULL;
    if (deadline_ns != ECH_NO_DEADLINE) {
        const int64_t t = deadline_ns > 0 ? deadline_ns : 0;
        at = (struct timespec){ t / ECH_NS_PER_S, t % ECH_NS_PER_S };
        timeout = &at;
    }
    /* WAIT_BITSET takes an absolute time of the monotonic clock. */
    const long rc = syscall(SYS_futex, word, FUTEX_WAIT_BITSET, expected, timeout, NULL,
                            FUTEX_BITSET_MATCH_ANY);
    return !(rc == -1 && errno == ETIMEDOUT);
}

void ech_os_futex_wake(uint32_t *const word)
{
    (void)syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}
