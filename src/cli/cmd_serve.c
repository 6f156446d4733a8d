/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `echelon serve`: an engine behind HTTP. The main thread waits for signals: TERM or INT drains, a
 * second one stops at once, HUP reads keys and certificate again.
 *
 * Exit codes: 0 after a drain, also one that a second signal cut short; 2 for wrong usage;
 * otherwise that of the error. Standard output gets one line, the URL, as soon as clients may
 * connect: a script can wait for it. Invariant: signals are taken in one place, by
 * sigtimedwait(); no handler runs, so nothing here has to be safe in one. systemd hears READY,
 * RELOADING and STOPPING (sd_notify.h).
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "echelon/model.h"
#include "echelon/server.h"
#include "src/base/log.h"
#include "src/cli/commands.h"
#include "src/cli/last_run.h"
#include "src/cli/load_options.h"
#include "src/cli/sd_notify.h"

static const char *model_dir, *host, *platform, *api_key_file, *api_key, *chat_template,
    *template_kwargs, *reasoning_field, *pooling, *reasoning_parser, *tool_call_parser;
static const char *config; /* read by config.c before the others */
static const char *tls_cert, *tls_key, *unix_path, *cors_origin, *audit, *metrics_prefix,
    *log_level, *trace;
static ech_strings served_names, more_addresses;
/* 0: not given, the library's own default stays. */
static int64_t port = 8080, max_seq_len, max_running, threads, max_itl, prefill_chunk,
               drain_timeout = 30, max_queued;
static int64_t max_tokens, ping_ms, write_timeout_s, request_timeout_s, header_timeout_s,
    idle_timeout_s, max_connections;
static uint64_t kv_memory, max_body, max_header_bytes;
static bool print_api, next_port, insecure, strict, any_model, no_prefix_cache, inherit_sockets,
    audit_text;

static const ech_option OPTIONS[] = {
    { "config", 0, ECH_OPT_STRING, &config, "FILE",
      "options as lines NAME = VALUE; environment and flags overwrite them", 0, 0, NULL },
    { "model-dir", 'm', ECH_OPT_STRING, &model_dir, "DIR",
      "the model's folder; default: the demo model", 0, 0, NULL },
    { "host", 0, ECH_OPT_STRING, &host, "ADDR", "address to bind; default 127.0.0.1", 0, 0, NULL },
    { "port", 'p', ECH_OPT_INT, &port, "N", "port to bind, 0 for any; default 8080", 0, 65535,
      NULL },
    { "next-port", 0, ECH_OPT_FLAG, &next_port, NULL,
      "if the port is taken, take the next free one", 0, 0, NULL },
    { "listen", 0, ECH_OPT_STRINGS, &more_addresses, "HOST:PORT", "listen there too; may repeat", 0,
      0, NULL },
    { "unix", 0, ECH_OPT_STRING, &unix_path, "PATH", "listen on a Unix socket too", 0, 0, NULL },
    { "inherit", 0, ECH_OPT_FLAG, &inherit_sockets, NULL,
      "serve the sockets that systemd hands over, instead of --host and --port", 0, 0, NULL },
    { "tls-cert", 0, ECH_OPT_STRING, &tls_cert, "FILE",
      "certificate chain in PEM; read again on SIGHUP", 0, 0, NULL },
    { "tls-key", 0, ECH_OPT_STRING, &tls_key, "FILE", "its private key in PEM", 0, 0, NULL },
    { "api-key-file", 0, ECH_OPT_STRING, &api_key_file, "FILE",
      "lines NAME KEY [SETTING=VALUE ...]; read again on SIGHUP", 0, 0, NULL },
    { "api-key", 0, ECH_OPT_STRING, &api_key, "KEY",
      "one key; better in the environment: ECHELON_API_KEY", 0, 0, NULL },
    { "insecure", 0, ECH_OPT_FLAG, &insecure, NULL, "bind a foreign address without a key", 0, 0,
      NULL },
    { "served-model-name", 0, ECH_OPT_STRINGS, &served_names, "NAME",
      "name of the model; may repeat", 0, 0, NULL },
    { "any-model", 0, ECH_OPT_FLAG, &any_model, NULL, "a request may name any model", 0, 0, NULL },
    { "strict", 0, ECH_OPT_FLAG, &strict, NULL, "an unknown field is an error", 0, 0, NULL },
    { "chat-template", 0, ECH_OPT_STRING, &chat_template, "FILE",
      "instead of the model's own template", 0, 0, NULL },
    { "chat-template-kwargs", 0, ECH_OPT_STRING, &template_kwargs, "JSON",
      "variables for the template where a request has none of its own", 0, 0, NULL },
    { "reasoning-field", 0, ECH_OPT_STRING, &reasoning_field, "NAME",
      "where reasoning is returned: reasoning_content (default), reasoning or both", 0, 0, NULL },
    { "pooling", 0, ECH_OPT_STRING, &pooling, "HOW",
      "of embeddings: last, mean or cls; default: as the model's files say, else last", 0, 0,
      NULL },
    { "reasoning-parser", 0, ECH_OPT_STRING, &reasoning_parser, "NAME",
      "instead of what the template shows: think, mistral, harmony, none", 0, 0, NULL },
    { "tool-call-parser", 0, ECH_OPT_STRING, &tool_call_parser, "NAME",
      "the same: hermes, qwen3_coder, llama3_json, mistral, deepseek, harmony, none", 0, 0, NULL },
    { "max-seq-len", 0, ECH_OPT_INT, &max_seq_len, "N", "prompt and answer together, in tokens", 1,
      1 << 24, NULL },
    { "max-running", 0, ECH_OPT_INT, &max_running, "N", "answers at the same time; default 32", 1,
      64, NULL },
    { "max-queued", 0, ECH_OPT_INT, &max_queued, "N", "answers that may wait; default 2048", 1,
      1 << 20, NULL },
    { "max-tokens", 0, ECH_OPT_INT, &max_tokens, "N",
      "cap of an answer whose request has none; default 4096", 1, 1 << 24, NULL },
    { "kv-memory", 0, ECH_OPT_SIZE, &kv_memory, "BYTES", "memory for KV pages, as 4G", 0, 0, NULL },
    ECH_KV_TYPE_OPTION,
    ECH_COMPUTE_OPTION,
    ECH_LOAD_OPTIONS,
    { "max-itl", 0, ECH_OPT_INT, &max_itl, "MS",
      "wanted bound of the gap between two tokens (default: 50 or two decode steps, the larger)", 1,
      600000, NULL },
    { "prefill-chunk", 0, ECH_OPT_INT, &prefill_chunk, "N", "most prompt tokens in one step", 1,
      512, NULL },
    { "no-prefix-cache", 0, ECH_OPT_FLAG, &no_prefix_cache, NULL, "compute every prompt anew", 0, 0,
      NULL },
    { "threads", 't', ECH_OPT_INT, &threads, "N", "cores; default: all that are there", 1, 4096,
      NULL },
    { "platform", 0, ECH_OPT_STRING, &platform, "NAME", "cpu (default) or sim", 0, 0, NULL },
    { "max-body", 0, ECH_OPT_SIZE, &max_body, "BYTES", "largest request; default 32M", 0, 0, NULL },
    { "max-header-bytes", 0, ECH_OPT_SIZE, &max_header_bytes, "BYTES",
      "largest request line with its headers; default 8K, at most 64K", 0, 0, NULL },
    { "max-connections", 0, ECH_OPT_INT, &max_connections, "N",
      "clients at the same time; default 4096", 1, 1 << 20, NULL },
    { "header-timeout", 0, ECH_OPT_INT, &header_timeout_s, "S",
      "a request's headers must be there by then, a body may rest so long; default 30", 1, 86400,
      NULL },
    { "idle-timeout", 0, ECH_OPT_INT, &idle_timeout_s, "S",
      "close a connection without a request; default 120", 1, 86400, NULL },
    { "ping-ms", 0, ECH_OPT_INT, &ping_ms, "MS",
      "a comment to a silent stream so often; default 15000", 10, 600000, NULL },
    { "write-timeout", 0, ECH_OPT_INT, &write_timeout_s, "S",
      "cut off a client that takes nothing; default 60", 1, 86400, NULL },
    { "request-timeout", 0, ECH_OPT_INT, &request_timeout_s, "S",
      "end an answer that takes longer with an error; default: none does", 1, 1 << 30, NULL },
    { "drain-timeout", 0, ECH_OPT_INT, &drain_timeout, "S",
      "running answers may finish after TERM; default 30", 0, 86400, NULL },
    { "cors-origin", 0, ECH_OPT_STRING, &cors_origin, "ORIGIN",
      "allow pages from there; default: none", 0, 0, NULL },
    { "metrics-prefix", 0, ECH_OPT_STRING, &metrics_prefix, "NAME",
      "default echelon; vllm for its dashboards", 0, 0, NULL },
    { "audit", 0, ECH_OPT_STRING, &audit, "FILE", "one JSON line per request; - is stderr", 0, 0,
      NULL },
    { "audit-text", 0, ECH_OPT_FLAG, &audit_text, NULL,
      "the audit lines carry requests and answers too", 0, 0, NULL },
    { "trace", 0, ECH_OPT_STRING, &trace, "FILE", "write a Chrome trace at the end", 0, 0, NULL },
    { "print-api", 0, ECH_OPT_FLAG, &print_api, NULL,
      "prints what requests may hold, in Markdown, and serves nothing", 0, 0, NULL },
    { "log-level", 0, ECH_OPT_STRING, &log_level, "LEVEL",
      "error, warning (default), info or debug", 0, 0, NULL },
};

/* What only the library can parse, after all options are read. */
static int take_types(ech_server_options *const so)
{
    ech_error err;
    if (pooling != NULL && ech_pooling_parse(pooling, &so->engine.pooling, &err) != ECH_OK) {
        return ech_usage_error("--pooling: %s", err.text);
    }
    return ECH_EXIT_OK;
}

/* Needs no model and no port: the tables are in the program. */
static int write_api(void)
{
    char *const text = ech_server_api_text();
    const bool ok = text != NULL && fputs(text, stdout) >= 0;
    free(text);
    return ok ? ECH_EXIT_OK : ECH_EXIT_FAILED;
}

/* Zeros are handed on: the engine takes them for "choose". */
static void take_engine(ech_engine_options *const eo)
{
    eo->model_dir = model_dir;
    if (platform != NULL) eo->platform = platform;
    eo->threads = (uint32_t)threads;
    eo->max_seq_len = (uint32_t)max_seq_len;
    eo->max_running = (uint32_t)max_running;
    eo->max_queued = (uint32_t)max_queued;
    eo->kv_memory = kv_memory;
    eo->prefill_chunk = (uint32_t)prefill_chunk;
    eo->max_itl_ms = (uint32_t)max_itl;
    eo->no_prefix_cache = no_prefix_cache;
    eo->trace_path = trace;
    ech_take_load_options(eo);
}

/* Only what was given is written over: defaults stand in ech_server_options_default() alone. */
static void take_server(ech_server_options *const so)
{
    if (host != NULL) so->host = host;
    so->port = (int)port;
    so->try_next_port = next_port;
    so->listen = more_addresses.items;
    so->n_listen = more_addresses.count;
    so->unix_path = unix_path;
    so->inherit_sockets = inherit_sockets;
    so->tls_cert = tls_cert;
    so->tls_key = tls_key;
    so->api_key_file = api_key_file;
    so->api_key = api_key;
    so->insecure = insecure;
    so->served_names = served_names.items;
    so->n_served_names = served_names.count;
    so->any_model = any_model;
    so->strict = strict;
    so->cors_origin = cors_origin;
    so->chat_template = chat_template;
    so->reasoning_parser = reasoning_parser;
    so->chat_template_kwargs = template_kwargs;
    so->reasoning_field = reasoning_field;
    so->tool_call_parser = tool_call_parser;
    if (metrics_prefix != NULL) so->metrics_prefix = metrics_prefix;
    if (max_body != 0) so->max_body = max_body;
    if (max_header_bytes != 0) so->max_header_bytes = max_header_bytes;
    if (max_connections != 0) so->max_connections = (uint32_t)max_connections;
    if (header_timeout_s != 0) so->header_timeout_s = (uint32_t)header_timeout_s;
    if (idle_timeout_s != 0) so->idle_timeout_s = (uint32_t)idle_timeout_s;
    if (max_tokens != 0) so->max_tokens = (uint32_t)max_tokens;
    if (ping_ms != 0) so->ping_ms = (uint32_t)ping_ms;
    if (write_timeout_s != 0) so->write_timeout_ms = (uint32_t)write_timeout_s * 1000;
    so->request_timeout_s = (uint32_t)request_timeout_s;
    so->audit_path = audit;
    so->audit_text = audit_text;
}

/*
 * On a thread of its own, so that the main thread still waits for signals: the second one must
 * be seen while the first is obeyed.
 */
static void *drain_main(void *const server)
{
    ech_server_drain(server, (int)drain_timeout * 1000);
    (void)kill(getpid(), SIGUSR1); /* tells the main thread that nothing runs any more */
    return NULL;
}

/*
 * READY comes after a failure too: the server goes on with what it had, and systemd would wait
 * for it. An error isn't the end of a server that runs.
 */
static void reload(ech_server *const server)
{
    ech_error err;
    ech_sd_notify_reloading();
    if (ech_server_reload(server, &err) != ECH_OK)
        ech_log(ECH_LOG_ERROR, "%s; what was read before stays", err.text);
    ech_sd_notify("READY=1");
}

/*
 * The next signal. Until the weights are there it looks now and then whether they are, to say
 * so. 50 ms: readiness has no signal of its own, and nobody notices so little.
 */
static int next_signal(ech_server *const server, const sigset_t *const signals, bool *const ready)
{
    const struct timespec often = { .tv_nsec = 50000000 };
    for (;;) {
        if (!*ready && ech_engine_wait_ready(ech_server_engine(server), 0, NULL, NULL) == ECH_OK) {
            *ready = true;
            ech_sd_notify("READY=1");
        }
        const int sig = sigtimedwait(signals, NULL, *ready ? NULL : &often);
        if (sig > 0) return sig;
    }
}

/*
 * Waits for signals until the server is empty.
 *
 *     HUP                 reads keys and certificate again
 *     TERM, INT           the drain thread starts; what runs may end
 *     TERM, INT again     the rest is cancelled
 *     USR1, draining      the drain thread is done
 *
 * Without a thread for the drain the server closes at once, which cancels what runs.
 */
static void serve_until_told(ech_server *const server, const sigset_t *const signals)
{
    pthread_t drain = 0;
    bool draining = false;
    bool ready = false;
    for (;;) {
        const int sig = next_signal(server, signals, &ready);
        if (sig == SIGHUP) {
            reload(server);
        } else if (sig == SIGUSR1) {
            if (draining) break; /* from somebody else it means nothing */
        } else if (!draining) {
            ech_sd_notify("STOPPING=1");
            draining = pthread_create(&drain, NULL, drain_main, server) == 0;
            if (!draining) return;
        } else {
            ech_server_drain(server, 0);
            break;
        }
    }
    (void)pthread_join(drain, NULL);
}

/* A client takes three descriptors; the usual soft limit is for select(2), which nothing here uses.
 */
static void raise_descriptors(void)
{
    struct rlimit l;
    if (getrlimit(RLIMIT_NOFILE, &l) != 0) return;
    l.rlim_cur = l.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &l);
}

/* In the order of ech_log_level. */
static int take_log_level(void)
{
    static const char *const NAMES[] = { "error", "warning", "info", "debug" };
    if (log_level == NULL) return ECH_EXIT_OK;
    for (int i = 0; i < 4; i++) {
        if (strcmp(log_level, NAMES[i]) == 0) {
            ech_log_set_level((ech_log_level)i);
            return ECH_EXIT_OK;
        }
    }
    return ech_usage_error("--log-level %s must be error, warning, info or debug", log_level);
}

/*
 * The order: options, which cost nothing to check; signals blocked; then the server, which
 * binds, forks and starts threads.
 */
static int run(const int argc, char **const argv)
{
    if (argc > 0) return ech_usage_error("serve takes no '%s'", argv[0]);
    if (print_api) return write_api();
    ech_server_options so;
    ech_server_options_default(&so);
    take_server(&so);
    take_engine(&so.engine);
    int rc = take_types(&so);
    if (rc == ECH_EXIT_OK) rc = take_log_level();
    if (rc != ECH_EXIT_OK) return rc;

    /* Blocked before any thread starts, so that every thread inherits it and sigwait alone sees
     * them. */
    sigset_t signals;
    (void)sigemptyset(&signals);
    const int WANTED[] = { SIGTERM, SIGINT, SIGHUP, SIGUSR1 };
    for (size_t i = 0; i < sizeof WANTED / sizeof WANTED[0]; i++) {
        (void)sigaddset(&signals, WANTED[i]);
    }
    (void)pthread_sigmask(SIG_BLOCK, &signals, NULL);
    /* A client that has left is an error of write(), not the server's end. */
    (void)signal(SIGPIPE, SIG_IGN);
    raise_descriptors();

    ech_server *server;
    ech_error err;
    if (ech_server_open(&server, &so, &err) != ECH_OK) return ech_report(&err);
    if (next_port && port != 0 && ech_server_port(server) != port) {
        (void)fprintf(stderr, "echelon: port %lld is taken, this is the next free one:\n",
                      (long long)port);
    }
    /*
     * Flushed: standard output is a pipe where somebody waits for the line. With a Unix socket
     * alone there is no URL to say.
     */
    if (ech_server_port(server) != 0) {
        const bool is_v6 = strchr(so.host, ':') != NULL;
        (void)printf("http%s://%s%s%s:%d\n", tls_cert != NULL ? "s" : "", is_v6 ? "[" : "", so.host,
                     is_v6 ? "]" : "", ech_server_port(server));
        (void)fflush(stdout);
    }
    serve_until_told(server, &signals);
    ech_last_run_keep("serve", ech_server_engine(server));
    return ech_status_exit(ech_server_close(&server));
}

const ech_command ech_cmd_serve = {
    "serve",
    "",
    "serve the model over HTTP, with OpenAI's API",
    "echelon serve --port 8080\ncurl http://127.0.0.1:8080/v1/chat/completions -d "
    "'{\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}]}'",
    OPTIONS,
    sizeof OPTIONS / sizeof OPTIONS[0],
    run,
};
