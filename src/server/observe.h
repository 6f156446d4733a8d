/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the server observes of requests, for GET /metrics: histograms under vLLM's names and with
 * its buckets, and counts of finished choices. Counters are atomic words; any thread reads them.
 */
#ifndef ECH_SERVER_OBSERVE_H
#define ECH_SERVER_OBSERVE_H

#include "src/server/exchange.h"

struct ech_generation;
struct ech_choice;

#define ECH_HISTOGRAM_BUCKETS 24

/* X(ID, name, buckets, help); times are observed in nanoseconds and shown in seconds. */
#define ECH_HISTOGRAM_MAP(X)                                                                       \
    X(TTFT, "time_to_first_token_seconds", TTFT, "From a request's arrival to its first token.")   \
    X(ITL, "inter_token_latency_seconds", GAP, "Between two tokens of a choice.")                  \
    X(TPOT, "request_time_per_output_token_seconds", GAP,                                          \
      "Mean time of a choice's tokens after the first.")                                           \
    X(E2E, "e2e_request_latency_seconds", REQUEST, "From a request's arrival to a choice's end.")  \
    X(QUEUE, "request_queue_time_seconds", REQUEST, "In the queue, before the first step.")        \
    X(PREFILL, "request_prefill_time_seconds", REQUEST, "From the first step to the first token.") \
    X(DECODE, "request_decode_time_seconds", REQUEST, "From the first token to the last.")         \
    X(INFERENCE, "request_inference_time_seconds", REQUEST, "From the first step to the last.")    \
    X(PROMPT, "request_prompt_tokens", TOKENS, "Tokens of a choice's prompt.")                     \
    X(GENERATION, "request_generation_tokens", TOKENS, "Tokens drawn for a choice.")               \
    X(MAX_TOKENS, "request_params_max_tokens", TOKENS, "max_tokens of requests.")                  \
    X(N, "request_params_n", COUNTS, "n of requests.")

typedef enum ech_histogram_id {
#define X(id, name, buckets, help) ECH_HISTOGRAM_##id,
    ECH_HISTOGRAM_MAP(X)
#undef X
        ECH_HISTOGRAM_COUNT,
} ech_histogram_id;

typedef struct ech_histogram {
    uint64_t counts[ECH_HISTOGRAM_BUCKETS + 1]; /* of each bucket alone; the last is above all */
    uint64_t sum;                               /* nanoseconds, or tokens */
} ech_histogram;

typedef struct ech_observed {
    ech_histogram histograms[ECH_HISTOGRAM_COUNT];
    uint64_t finished[ECH_FINISH_ERROR + 1]; /* choices, by why they ended */
} ech_observed;

/* A request was accepted by the engine. */
void ech_observe_request(ech_exchange *x, const struct ech_generation *g, uint32_t max_tokens);
void ech_observe_token(ech_exchange *x, struct ech_choice *c, const ech_event *ev);
void ech_observe_finish(ech_exchange *x, struct ech_choice *c, const ech_event *ev);
/* The exchange is over; choices whose end was never read count as aborted. */
void ech_observe_end(ech_exchange *x, const struct ech_generation *g);

/* Appends every family in Prometheus text; labels is what stands in the braces, escaped. */
ech_status ech_observed_put(ech_buf *b, const ech_observed *o, const char *prefix,
                            const char *labels);

#endif
