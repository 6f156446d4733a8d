/* SPDX-License-Identifier: Apache-2.0 */
/* The choice of cores. See machine.h; pure but for the warning. */
#include "src/engine/machine.h"

#include <math.h>

#include "src/base/log.h"

static uint32_t default_threads(const ech_machine *m)
{
    uint32_t n = m->n_cores;
    if (m->quota_cpus > 0 && m->quota_cpus < n) n = (uint32_t)ceil(m->quota_cpus);
    return n > 0 ? n : 1;
}

/* One CPU of each physical core first, then their siblings. */
static uint32_t order_cpus(const ech_machine *m, uint32_t *cpus, uint32_t cap)
{
    uint32_t n = 0;
    for (int siblings = 0; siblings < 2; siblings++)
        for (uint32_t i = 0; i < m->n_cpus && n < cap; i++)
            if ((m->core[i] != i) == (siblings == 1)) cpus[n++] = m->cpus[i];
    return n;
}

void ech_machine_plan_cores(const ech_machine *m, uint32_t threads, bool oversubscribe,
                            ech_cpu_options *o)
{
    const uint32_t n_cpus = order_cpus(m, o->cpus, ECH_CPU_MAX_THREADS);
    uint32_t n = threads > 0 ? threads : default_threads(m);
    if (n > ECH_CPU_MAX_THREADS) n = ECH_CPU_MAX_THREADS;
    if (n > n_cpus && !oversubscribe && n_cpus > 0) {
        ech_log(ECH_LOG_WARN, "%u threads were asked for, this process may use %u CPUs: using %u",
                n, n_cpus, n_cpus);
        n = n_cpus;
    }
    o->n_threads = n;
    o->pin = n <= n_cpus;
}
