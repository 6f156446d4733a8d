/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Truncation and draw over a view of the order; sampler_filter.h states the contract. Every
 * sampler keeps at least one id. The range stays contiguous through all of them: what typical
 * keeps lies around one point of the order, and what XTC drops is its head.
 *
 * Running sums go down the order in double; only the mass of an open view is summed in the lanes of
 * ech_scan_sum(), for sorting the whole vocabulary to add it up would cost ten times as much.
 */
#include "src/chip/sampler_filter.h"

#include <math.h>

#include "src/chip/sampler_math.h"
#include "src/chip/sampler_scan.h"

void ech_sampler_view_start(ech_sampler_view *const v, ech_order *const order,
                            double *const weights, const float temperature)
{
    *v = (ech_sampler_view){
        .order = order,
        .weights = weights,
        .inv_t = 1.0 / (double)temperature,
        .end = ECH_VIEW_OPEN,
    };
}

/* z = (logit - max) / temperature of place i. */
static double exponent_at(const ech_sampler_view *const v, const uint32_t i)
{
    const float x = v->order->logits[ech_order_id(v->order, i)];
    return ((double)x - (double)v->order->max) * v->inv_t;
}

/* Whether place i is in the view; its weight is known after a yes. */
static bool reach(ech_sampler_view *const v, const uint32_t i)
{
    if (i >= v->end || !ech_order_reach(v->order, i)) return false;
    for (; v->n_weights <= i; v->n_weights++) {
        v->weights[v->n_weights] = ech_sampler_exp(exponent_at(v, v->n_weights));
    }
    return true;
}

/* Mass of the view; where ret_wz isn't NULL, also the sum of weight * exponent. */
static double view_sums(ech_sampler_view *const v, double *const ret_wz)
{
    double mass = 0.0;
    double wz = 0.0;
    if (v->end == ECH_VIEW_OPEN && v->begin == 0) {
        const ech_order *const o = v->order;
        ech_scan_sum(o->logits, o->vocab, o->block_max, o->max, v->inv_t, &mass, ret_wz);
        return mass;
    }
    for (uint32_t i = v->begin; reach(v, i); i++) {
        mass += v->weights[i];
        wz += v->weights[i] * exponent_at(v, i);
    }
    if (ret_wz != NULL) *ret_wz = wz;
    return mass;
}

static double view_mass(ech_sampler_view *const v)
{
    return view_sums(v, NULL);
}

static void keep_top_k(ech_sampler_view *const v, const uint32_t k)
{
    if (ech_order_reach(v->order, k - 1)) {
        v->end = k;
    } else {
        v->end = v->order->n; /* fewer ids than k are left, all in order now */
    }
}

/*
 * Locally typical sampling: ids by | -log p - entropy |, ascending, until their mass reaches p, the
 * id that crosses it kept. With z = log p + const that distance is | z - mean z |, and since z
 * descends along the order, the kept ids grow from one place to both sides. Equal distances: the
 * more probable first.
 */
static void keep_typical(ech_sampler_view *const v, const double p)
{
    double wz;
    const double mass = view_sums(v, &wz);
    const double mean = wz / mass;
    uint32_t high = v->begin; /* first place on the far side */
    while (reach(v, high) && exponent_at(v, high) > mean) {
        high++;
    }
    uint32_t low = high; /* [low, high) is kept */
    double sum = 0.0;
    while (sum < p * mass) {
        const bool has_high = reach(v, high);
        if (low == v->begin && !has_high) break;
        const double up = low > v->begin ? exponent_at(v, low - 1) - mean : INFINITY;
        const double down = has_high ? mean - exponent_at(v, high) : INFINITY;
        sum += up <= down ? v->weights[--low] : v->weights[high++];
    }
    if (low == high) { /* p = 0: the most typical alone */
        if (reach(v, high)) {
            high++;
        } else {
            low--;
        }
    }
    v->begin = low;
    v->end = high;
}

static void keep_top_p(ech_sampler_view *const v, const double p)
{
    const double want = p * view_mass(v);
    double sum = 0.0;
    uint32_t i = v->begin;
    do {
        if (!reach(v, i)) break;
        sum += v->weights[i++];
    } while (sum < want);
    v->end = i;
}

static void keep_min_p(ech_sampler_view *const v, const double p)
{
    if (!reach(v, v->begin)) return;
    const double least = p * v->weights[v->begin];
    uint32_t i = v->begin + 1;
    while (reach(v, i) && v->weights[i] >= least) {
        i++;
    }
    v->end = i;
}

/* Of the ids with p >= threshold, if there are two or more, only the least probable stays. */
static void exclude_top(ech_sampler_view *const v, const double threshold)
{
    const double least = threshold * view_mass(v);
    uint32_t i = v->begin;
    while (reach(v, i) && v->weights[i] >= least) {
        i++;
    }
    if (i > v->begin + 1) v->begin = i - 1;
}

void ech_sampler_filter(ech_sampler_view *const v, const ech_sampler_row *const row, const double u)
{
    if (row->top_k != 0) keep_top_k(v, row->top_k);
    if (row->typical_p < 1.0f) keep_typical(v, (double)row->typical_p);
    if (row->top_p < 1.0f) keep_top_p(v, (double)row->top_p);
    if (row->min_p > 0.0f) keep_min_p(v, (double)row->min_p);
    if (row->xtc_threshold <= 0.5f && u < (double)row->xtc_probability) {
        exclude_top(v, (double)row->xtc_threshold);
    }
}

static uint32_t draw_from(ech_sampler_view *const v, const double u, const double mass)
{
    const double want = u * mass;
    double sum = 0.0;
    uint32_t i = v->begin;
    for (; reach(v, i); i++) {
        sum += v->weights[i];
        if (sum > want) return i;
    }
    return i - 1;
}

uint32_t ech_sampler_draw(ech_sampler_view *const v, const double u)
{
    return draw_from(v, u, view_mass(v));
}

/*
 * Mirostat 1's k (Basu et al. 2021): the Zipf exponent s is estimated from the 100 most probable
 * ids, k from s, mu and the size of the vocabulary.
 */
static uint32_t estimate_k(ech_sampler_view *const v, const double mu)
{
    enum { M = 100 };
    double tb = 0.0;
    double tt = 0.0;
    for (uint32_t i = 0; i + 1 < M && reach(v, i + 1); i++) {
        const double t = ech_sampler_log((double)(i + 2) / (double)(i + 1));
        tb += t * (exponent_at(v, i) - exponent_at(v, i + 1));
        tt += t * t;
    }
    if (!(tt > 0.0) || !(tb > 0.0)) return UINT32_MAX; /* one id, or a flat head: no estimate */
    const double s = tb / tt;
    const double eps = s - 1.0;
    const double log_n = ech_sampler_log((double)v->order->vocab);
    const double ln2 = 0x1.62e42fefa39efp-1;
    double log_ratio; /* ln(eps / (1 - N^-eps)), its limit 1 / ln N at eps = 0 */
    if (fabs(eps) < 1e-6) {
        log_ratio = -ech_sampler_log(log_n > 1e-3 ? log_n : 1e-3);
    } else {
        const double power = -eps * log_n;
        const double rest = 1.0 - ech_sampler_exp(power < 700.0 ? power : 700.0);
        const double ratio = eps / rest;
        log_ratio = ech_sampler_log(ratio > 1e-300 ? ratio : 1e-300);
    }
    const double log_k = (log_ratio + mu * ln2) / s;
    if (log_k > 21.0) return UINT32_MAX; /* e^21 > 2^30: all ids */
    const double k = ech_sampler_exp(log_k);
    return k > 1.0 ? (uint32_t)k : 1u;
}

/* Mirostat 2: ids whose surprise exceeds mu bits go, the first id stays. */
static void keep_unsurprising(ech_sampler_view *const v, const double mu)
{
    const double log_mass = ech_sampler_log(view_mass(v));
    const double least = log_mass - mu * 0x1.62e42fefa39efp-1; /* in units of z */
    uint32_t i = 1;
    while (reach(v, i) && exponent_at(v, i) >= least) {
        i++;
    }
    v->end = i;
}

uint32_t ech_sampler_mirostat(ech_sampler_view *const v, const ech_sampler_row *const row,
                              const double u, float *const mu)
{
    if (row->mirostat == 1) {
        const uint32_t k = estimate_k(v, (double)*mu);
        if (k != UINT32_MAX) keep_top_k(v, k);
    } else {
        keep_unsurprising(v, (double)*mu);
    }
    const double mass = view_mass(v);
    const uint32_t place = draw_from(v, u, mass);
    const double surprise =
        (ech_sampler_log(mass) - exponent_at(v, place)) * 0x1.71547652b82fep0; /* bits */
    *mu = (float)((double)*mu - (double)row->mirostat_eta * (surprise - (double)row->mirostat_tau));
    return place;
}
