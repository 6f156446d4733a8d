/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When a step fails. A chip that is gone is replaced through the worker, and what was in flight is
 * planned again from the last commit: keys, values and ids up to there are in shared memory, and
 * the same rows give the same bits, so no stream notices.
 *
 *     deaths in a row   what is done
 *     1                 the step is repeated
 *     2                 its answers run alone, one after the other, until each has committed a step
 *
 * Where no chip can ever come again, because the worker's zygote is gone, the engine fails.
 *
 * An answer that was in chip_deaths such steps, none of its own committed in between, fails: with
 * the default of 3 that is the one whose rows do it, and the others go on. Runs on the engine's
 * thread.
 */
#include "src/base/clock.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/engine/engine_int.h"

enum { ALONE_AFTER = 2 };
#define FIRST_WAIT_NS (100 * ECH_NS_PER_MS)
#define MAX_WAIT_NS   (5 * ECH_NS_PER_S)

/* Waits for what is in flight; a prepared run fails with the active one's cause. */
static void settle(ech_engine *e)
{
    for (uint32_t i = 0; i < 2; i++) {
        ech_step *const step = &e->steps[i];
        if (step->run == NULL) continue;
        ech_run_cancel(step->run); /* a gate that nobody will open must not keep it */
        (void)ech_run_wait(step->run, ECH_FOREVER, NULL);
        ech_run_release(&step->run);
    }
    e->n_done = e->n_sent;
    ech_sched_rolled_back(&e->sched);
}

static void replace_chip(ech_engine *e)
{
    ech_error err = { .code = ECH_OK };
    const int64_t start = ech_now_ns();
    const ech_status rc = ech_worker_replace(e->worker, 0, &err);
    if (rc == ECH_OK) {
        ech_log(ECH_LOG_WARN, "the chip was replaced in %.1f ms",
                (double)(ech_now_ns() - start) / (double)ECH_NS_PER_MS);
        e->next_replace_ns = e->replace_wait_ns = 0;
        (void)pthread_mutex_lock(&e->lock);
        e->counters.chip_replacements++;
        (void)pthread_mutex_unlock(&e->lock);
        return;
    }
    if (rc == ECH_EPOISONED) { /* who forks chips is gone: no later try can succeed */
        ech_engine_fail(e, &err);
        return;
    }
    e->replace_wait_ns = e->replace_wait_ns == 0 ? FIRST_WAIT_NS : 2 * e->replace_wait_ns;
    if (e->replace_wait_ns > MAX_WAIT_NS) e->replace_wait_ns = MAX_WAIT_NS;
    e->next_replace_ns = ech_now_ns() + e->replace_wait_ns;
    ech_log(ECH_LOG_ERROR, "replacing the chip: %s; trying again in %lld ms", err.text,
            (long long)(e->replace_wait_ns / ECH_NS_PER_MS));
}

bool ech_chip_is_there(ech_engine *e)
{
    if (e->next_replace_ns == 0) return true;
    if (ech_now_ns() < e->next_replace_ns) return false;
    replace_chip(e);
    return e->next_replace_ns == 0;
}

static bool chip_is_gone(ech_engine *e)
{
    ech_child_info info;
    if (ech_worker_child_info(e->worker, 0, &info, NULL) != ECH_OK) return true;
    return info.state != ECH_CHILD_READY;
}

static void fail_step(ech_engine *e, const ech_step_plan *plan, const ech_error *err)
{
    for (uint32_t i = 0; i < plan->n_items; i++)
        ech_live_finish(e, (ech_answer *)plan->items[i].seq, ECH_FINISH_ERROR, NULL, err);
}

static void suspect_step(ech_engine *e, const ech_step_plan *plan)
{
    for (uint32_t i = 0; i < plan->n_items; i++) {
        ech_answer *const a = (ech_answer *)plan->items[i].seq;
        if (a->has_finished || a->is_suspect) continue;
        a->is_suspect = true;
        e->n_suspects++;
    }
}

/* The next answer to be run alone; NULL when all of them have shown that they can. */
static void choose_suspect(ech_engine *e)
{
    e->sched.only = NULL;
    for (ech_seq *seq = e->sched.running.head; seq != NULL && e->n_suspects > 0; seq = seq->next) {
        if (!((ech_answer *)seq)->is_suspect) continue;
        e->sched.only = seq;
        return;
    }
    /* Those that wait will be tried when they are admitted, with the others. */
    for (ech_seq *seq = e->sched.waiting.head; seq != NULL; seq = seq->next)
        ((ech_answer *)seq)->is_suspect = false;
    e->n_suspects = 0;
}

void ech_chip_worked(ech_engine *e, const ech_step *step)
{
    e->deaths_in_a_row = 0;
    for (uint32_t i = 0; i < step->plan.n_items; i++) {
        ech_answer *const a = (ech_answer *)step->plan.items[i].seq;
        a->deaths = 0;
        if (!a->is_suspect) continue;
        a->is_suspect = false;
        e->n_suspects--;
    }
    if (e->sched.only != NULL) choose_suspect(e);
}

/* Counts the death for each answer of the step; those that have had too many fail. */
static void blame(ech_engine *e, const ech_step_plan *plan, const ech_error *err)
{
    for (uint32_t i = 0; i < plan->n_items; i++) {
        ech_answer *const a = (ech_answer *)plan->items[i].seq;
        ech_error why = { .code = ECH_OK };
        if (a->has_finished || ++a->deaths < e->options.chip_deaths) continue;
        (void)ech_fail(&why, ECH_ELOST,
                       "%u chips in a row were lost in steps of this request%s: %.300s", a->deaths,
                       plan->n_items == 1 ? ", the last one alone" : "", err->text);
        ech_live_finish(e, a, ECH_FINISH_ERROR, NULL, &why);
    }
}

static void count_death(ech_engine *e, const ech_step_plan *plan, const ech_error *err)
{
    e->deaths_in_a_row++;
    ech_log(ECH_LOG_WARN, "a chip was lost (%u in a row): %s", e->deaths_in_a_row, err->text);
    blame(e, plan, err);
    if (e->deaths_in_a_row >= ALONE_AFTER) suspect_step(e, plan);
    choose_suspect(e);
}

/* No chip could go on with them: nothing is drawn from what they are now. */
void ech_chip_lost_weights(ech_engine *e, const ech_error *why)
{
    settle(e);
    ech_log(ECH_LOG_WARN, "%s", why->text);
    ech_engine_fail(e, why);
}

void ech_chip_failed(ech_engine *e, ech_status rc, const ech_error *err)
{
    const ech_step_plan *const plan = &e->steps[e->n_done & 1].plan;
    settle(e);
    if (chip_is_gone(e)) {
        count_death(e, plan, err);
        replace_chip(e);
    } else if (rc != ECH_ECANCELLED) {
        fail_step(e, plan, err);
        choose_suspect(e);
    }
    ech_live_reap(e);
}
