/* SPDX-License-Identifier: Apache-2.0 */
/* The table of routes; see route.h. Each is served with and without /v1 before it. */
#include "src/server/route.h"

#include <string.h>

#include "src/server/api.h"

static const ech_route ROUTES[] = {
    { "POST", "/chat/completions", false, false, false, ech_api_chat, "a chat's next message" },
    { "POST", "/completions", false, false, false, ech_api_completions, "what follows a prompt" },
    { "POST", "/responses", false, false, false, ech_api_responses,
      "an answer as a list of items, stateless" },
    { "POST", "/messages", false, false, false, ech_api_messages,
      "an answer as content blocks, Anthropic's API" },
    { "POST", "/messages/count_tokens", false, false, false, ech_api_count_tokens,
      "tokens of such a request" },
    { "POST", "/tokenize", false, false, false, ech_api_tokenize, "text to token ids" },
    { "POST", "/detokenize", false, false, false, ech_api_detokenize, "token ids to text" },
    { "GET", "/models", false, true, false, ech_api_models, "what is served" },
    { "GET", "/models/", true, true, false, ech_api_model, "one served model" },
    { "GET", "/health", false, true, true, ech_api_health, "whether requests can run now" },
    { "GET", "/health/live", false, true, true, ech_api_live, "200 until the server exits" },
    { "GET", "/version", false, true, true, ech_api_version, "the version of the server" },
    { "GET", "/props", false, true, false, ech_api_props, "sizes and limits" },
    { "GET", "/metrics", false, true, false, ech_api_metrics, "counters in Prometheus text" },
    { "GET", "/requests", false, true, false, ech_api_requests, "what runs and waits" },
    { "DELETE", "/requests/", true, true, false, ech_api_cancel, "cancels a request" },
    { "GET", "/", false, true, true, ech_api_page, "the web page" },
    { "GET", "/app.js", false, true, true, ech_api_page, "the page's program" },
    { "GET", "/markdown.js", false, true, true, ech_api_page, "the page's Markdown" },
    { "GET", "/state.js", false, true, true, ech_api_page, "the page's state tab" },
    { "GET", "/style.css", false, true, true, ech_api_page, "the page's style" },
};

#define N_ROUTES (sizeof ROUTES / sizeof ROUTES[0])

const ech_route *ech_route_at(const size_t idx)
{
    return idx < N_ROUTES ? &ROUTES[idx] : NULL;
}

static bool path_matches(const ech_route *const r, const char *const path)
{
    const size_t n = strlen(r->path);
    return r->takes_tail ? strncmp(path, r->path, n) == 0 && path[n] != '\0'
                         : strcmp(path, r->path) == 0;
}

const ech_route *ech_route_find(const char *const method, const char *path,
                                const char **const ret_tail, const char **const ret_allow)
{
    if (strncmp(path, "/v1/", 4) == 0) path += 3;
    const char *const wanted = strcmp(method, "HEAD") == 0 ? "GET" : method;
    *ret_allow = NULL;
    for (size_t i = 0; i < N_ROUTES; i++) {
        if (!path_matches(&ROUTES[i], path)) continue;
        if (strcmp(ROUTES[i].method, wanted) == 0) {
            *ret_tail = ROUTES[i].takes_tail ? path + strlen(ROUTES[i].path) : "";
            return &ROUTES[i];
        }
        *ret_allow = ROUTES[i].method;
    }
    return NULL;
}
