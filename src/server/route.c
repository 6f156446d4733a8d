/* SPDX-License-Identifier: Apache-2.0 */
/* The table of routes; see route.h. Each is served with and without /v1 before it. */
#include "src/server/route.h"

#include <string.h>

#include "src/server/api.h"
#include "src/server/fields.h"

/*
 * Method, path, whether the path goes on (ids may hold slashes), whether the loop thread itself
 * answers, whether no key is asked for, the handler, then what documentation needs: a sentence,
 * which fields it takes, the schema of its answer, whether it only counts.
 *
 * Answered on the loop are the ones that never wait and allocate little; everything that parses a
 * body goes to a text thread, since a body may be 32 MiB of JSON.
 */
static const ech_route ROUTES[] = {
    { "POST", "/chat/completions", false, false, false, ech_api_chat, "a chat's next message",
      ECH_IN_CHAT, "ChatCompletion", false },
    { "POST", "/completions", false, false, false, ech_api_completions, "what follows a prompt",
      ECH_IN_COMPLETIONS, "Completion", false },
    { "POST", "/responses", false, false, false, ech_api_responses,
      "an answer as a list of items, stateless", ECH_IN_RESPONSES, "Response", false },
    { "POST", "/messages", false, false, false, ech_api_messages,
      "an answer as content blocks, Anthropic's API", ECH_IN_MESSAGES, "Message", false },
    { "POST", "/messages/count_tokens", false, false, false, ech_api_count_tokens,
      "tokens of such a request", ECH_IN_MESSAGES, "InputTokens", true },
    { "POST", "/embeddings", false, false, false, ech_api_embeddings, "texts as vectors",
      ECH_IN_EMBEDDINGS, "Embeddings", false },
    { "POST", "/tokenize", false, false, false, ech_api_tokenize, "text to token ids",
      ECH_IN_TOKENIZE, "Tokens", false },
    { "POST", "/detokenize", false, false, false, ech_api_detokenize, "token ids to text",
      ECH_IN_DETOKENIZE, "Text", false },
    { "POST", "/apply-template", false, false, false, ech_api_apply_template,
      "the prompt that a chat becomes, generating nothing", ECH_IN_CHAT, "Prompt", true },
    { "GET", "/models", false, true, false, ech_api_models, "what is served", 0, "Models", false },
    { "GET", "/models/", true, true, false, ech_api_model, "one served model", 0, "Model", false },
    { "GET", "/health", false, true, true, ech_api_health, "whether requests can run now", 0,
      "Health", false },
    { "GET", "/health/live", false, true, true, ech_api_live, "200 until the server exits", 0,
      "Health", false },
    { "GET", "/version", false, true, true, ech_api_version, "the version of the server", 0,
      "Version", false },
    { "GET", "/props", false, true, false, ech_api_props, "sizes and limits", 0, "Props", false },
    { "GET", "/metrics", false, true, false, ech_api_metrics, "counters in Prometheus text", 0,
      "text/plain", false },
    { "GET", "/requests", false, true, false, ech_api_requests, "what runs and waits", 0,
      "Requests", false },
    { "DELETE", "/requests/", true, true, false, ech_api_cancel, "cancels a request", 0, NULL,
      false },
    { "GET", "/openapi.json", false, false, true, ech_api_openapi, "this list for machines", 0,
      "Document", false },
    { "GET", "/", false, true, true, ech_api_page, "the web page", 0, "text/html", false },
    { "GET", "/app.js", false, true, true, ech_api_page, "the page's program", 0, "text/javascript",
      false },
    { "GET", "/markdown.js", false, true, true, ech_api_page, "the page's Markdown", 0,
      "text/javascript", false },
    { "GET", "/state.js", false, true, true, ech_api_page, "the page's state tab", 0,
      "text/javascript", false },
    { "GET", "/style.css", false, true, true, ech_api_page, "the page's style", 0, "text/css",
      false },
};

#define N_ROUTES (sizeof ROUTES / sizeof ROUTES[0])

const ech_route *ech_route_at(const size_t idx)
{
    return idx < N_ROUTES ? &ROUTES[idx] : NULL;
}

/* A tail may be anything but empty: /models/ alone names no model. */
static bool path_matches(const ech_route *const r, const char *const path)
{
    const size_t n = strlen(r->path);
    return r->takes_tail ? strncmp(path, r->path, n) == 0 && path[n] != '\0'
                         : strcmp(path, r->path) == 0;
}

/*
 * HEAD is answered as GET; the library leaves the body out. A path that exists under another method
 * sets *ret_allow, so that a 405 can say which: a 404 there would send people looking for a typing
 * error that they didn't make.
 */
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
