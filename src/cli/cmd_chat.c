/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `echelon chat`: a conversation in the terminal. It talks to a server over HTTP, to --url or to
 * one that it opens in its own process on loopback behind a key of its own: there is one way to
 * chat. One thread; Ctrl-C stops the answer, not the program.
 *
 * Invariant: the conversation holds what was said and answered, in order, so that each request
 * is the whole of it: the server keeps nothing. An answer that failed without a word leaves the
 * question in the list, and /regen asks again. Errors of an answer are printed in brackets and
 * don't end the program; only what keeps it from starting does. Left out: tools, images,
 * reasoning of earlier turns (templates drop it).
 */
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>
#ifdef ECH_HAVE_LIBEDIT
#include <editline/readline.h>
#endif

#include "echelon/server.h"
#include "src/base/clock.h"
#include "src/base/error.h"
#include "src/cli/commands.h"
#include "src/cli/generate_ask.h"
#include "src/cli/http_client.h"
#include "src/cli/load_options.h"

static const char *model_dir, *url_text, *api_key, *system_text, *model_name, *trace;
static int64_t threads, max_tokens, seed = -1;
/* -1: not given; the server's default stands, which is the model's own. */
static double temperature = -1, top_p = -1;
static bool think;
static ech_ask_flags asked = { .reasoning_budget = -1 };
static int64_t reasoning_budget = -1;

static const ech_option OPTIONS[] = {
    { "model-dir", 'm', ECH_OPT_STRING, &model_dir, "DIR",
      "the model's folder; default: the demo model", 0, 0, NULL },
    { "url", 0, ECH_OPT_STRING, &url_text, "URL",
      "use a running server instead, as http://127.0.0.1:8080/v1 or https://…", 0, 0, NULL },
    ECH_CLIENT_TLS_OPTIONS,
    { "api-key", 0, ECH_OPT_STRING, &api_key, "KEY",
      "its key; better in the environment: ECHELON_API_KEY", 0, 0, NULL },
    { "model", 0, ECH_OPT_STRING, &model_name, "NAME", "name of a model that the server serves", 0,
      0, NULL },
    { "system", 0, ECH_OPT_STRING, &system_text, "TEXT", "the system prompt", 0, 0, NULL },
    { "temperature", 0, ECH_OPT_DOUBLE, &temperature, "T", "0 is greedy; default: the model's", 0,
      100, NULL },
    { "top-p", 0, ECH_OPT_DOUBLE, &top_p, "P", "nucleus; default: the model's", 1e-9, 1, NULL },
    { "seed", 0, ECH_OPT_INT, &seed, "N", "default: drawn", 0, 9e18, NULL },
    { "max-tokens", 0, ECH_OPT_INT, &max_tokens, "N", "most tokens of an answer", 1, 1 << 24,
      NULL },
    { "think", 0, ECH_OPT_FLAG, &think, NULL, "let the model think first", 0, 0, NULL },
    { "reasoning-budget", 0, ECH_OPT_INT, &reasoning_budget, "N", "most tokens of reasoning", 0,
      1 << 30, NULL },
    { "schema", 0, ECH_OPT_STRING, &asked.schema, "FILE",
      "answers are JSON of this schema; a file, or the schema itself", 0, 0, NULL },
    { "json-object", 0, ECH_OPT_FLAG, &asked.json_object, NULL, "answers are JSON objects", 0, 0,
      NULL },
    { "regex", 0, ECH_OPT_STRING, &asked.regex, "REGEX", "answers match it as a whole", 0, 0,
      NULL },
    { "choice", 0, ECH_OPT_STRINGS, &asked.choices, "TEXT",
      "answers are this or another choice; may repeat", 0, 0, NULL },
    { "grammar", 0, ECH_OPT_STRING, &asked.grammar, "FILE", "answers follow this GBNF grammar", 0,
      0, NULL },
    { "trace", 0, ECH_OPT_STRING, &trace, "FILE", "write a Chrome trace at the end", 0, 0, NULL },
    ECH_LOAD_OPTIONS,
    { "threads", 't', ECH_OPT_INT, &threads, "N", "cores; default: all that are there", 1, 4096,
      NULL },
};

/* A conversation and what is said with each request. */
typedef struct chat {
    ech_url url;
    char key[256];
    json_t *messages; /* [{role, content}, …], the system prompt not among them */
    json_t *settings; /* {"temperature": …} */
    char *system;     /* "" for none */
    /* of the last answer */
    ech_buf text;
    int64_t start_ns, first_ns, last_ns;
    int64_t n_prompt, n_completion, n_cached;
    bool in_reasoning;
    char failure[256];
} chat;

/* Set by Ctrl-C while an answer is read. */
static volatile int stop_answer;

/* All that a handler may do. */
static void on_interrupt(const int sig)
{
    (void)sig;
    stop_answer = 1;
}

/* ---- an answer ------------------------------------------------------------------------------ */

/*
 * Reasoning is dim on a terminal and not kept. Both names of its field are read: servers differ.
 */
static void print_delta(chat *const c, const json_t *const delta)
{
    const char *reasoning = json_string_value(json_object_get(delta, "reasoning_content"));
    if (reasoning == NULL) reasoning = json_string_value(json_object_get(delta, "reasoning"));
    const char *const content = json_string_value(json_object_get(delta, "content"));
    if ((reasoning != NULL && reasoning[0] != '\0') || (content != NULL && content[0] != '\0')) {
        c->last_ns = ech_now_ns();
        if (c->first_ns == 0) c->first_ns = c->last_ns;
    }
    const bool dim = isatty(STDOUT_FILENO) == 1;
    if (reasoning != NULL && reasoning[0] != '\0') {
        if (!c->in_reasoning && dim) (void)fputs("\033[2m", stdout);
        c->in_reasoning = true;
        (void)fputs(reasoning, stdout);
    }
    if (content != NULL && content[0] != '\0') {
        if (c->in_reasoning) (void)fputs(dim ? "\033[0m\n" : "\n", stdout);
        c->in_reasoning = false;
        (void)fputs(content, stdout);
        (void)ech_buf_puts(&c->text, content);
    }
    (void)fflush(stdout);
}

/*
 * False ends the reading. The usage comes in the last chunk before [DONE]; a frame that is no
 * JSON is passed over, as every function of jansson takes NULL. An error may come in the middle
 * of a stream, whose status was 200.
 */
static bool take_frame(void *const ctx, const char *const data, const size_t len)
{
    chat *const c = ctx;
    if (len >= 6 && strncmp(data, "[DONE]", 6) == 0) return false;
    json_error_t why;
    json_t *const frame = json_loadb(data, len, 0, &why);
    const json_t *const error = json_object_get(frame, "error");
    if (error != NULL) {
        const char *const message = json_string_value(json_object_get(error, "message"));
        (void)snprintf(c->failure, sizeof c->failure, "%s",
                       message != NULL ? message : "the server failed");
    }
    const json_t *const usage = json_object_get(frame, "usage");
    if (json_is_object(usage)) {
        c->n_prompt = json_integer_value(json_object_get(usage, "prompt_tokens"));
        c->n_completion = json_integer_value(json_object_get(usage, "completion_tokens"));
        c->n_cached = json_integer_value(
            json_object_get(json_object_get(usage, "prompt_tokens_details"), "cached_tokens"));
    }
    print_delta(c, json_object_get(json_array_get(json_object_get(frame, "choices"), 0), "delta"));
    json_decref(frame);
    return c->failure[0] == '\0';
}

/*
 * The system prompt goes first and isn't one of the messages, so that /system changes it for the
 * whole conversation. malloc'ed; NULL: out of memory.
 */
static char *request_body(const chat *const c)
{
    json_t *const body = json_deep_copy(c->settings);
    json_t *const messages = json_array();
    if (c->system[0] != '\0') {
        (void)json_array_append_new(
            messages, json_pack("{s:s, s:s}", "role", "system", "content", c->system));
    }
    (void)json_array_extend(messages, c->messages);
    (void)json_object_set_new(body, "messages", messages);
    (void)json_object_set_new(body, "stream", json_true());
    (void)json_object_set_new(body, "stream_options", json_pack("{s:b}", "include_usage", 1));
    char *const text = json_dumps(body, JSON_COMPACT);
    json_decref(body);
    return text;
}

/*
 * Answers the last message; what was written before it was stopped is kept as the answer. The
 * text so far is an answer as well, also after Ctrl-C or a failure: the model should know what
 * the user has read. status 0: no answer came, the error says why.
 */
static void answer(chat *const c)
{
    char *const body = request_body(c);
    if (body == NULL) return;
    ech_buf_clear(&c->text);
    c->failure[0] = '\0';
    c->start_ns = ech_now_ns();
    c->first_ns = c->last_ns = 0;
    c->n_completion = c->n_cached = c->n_prompt = 0;
    c->in_reasoning = false;
    stop_answer = 0;
    ech_http_call call = {
        .url = &c->url,
        .method = "POST",
        .path = "/chat/completions",
        .api_key = c->key[0] != '\0' ? c->key : NULL,
        .body = body,
        .body_len = strlen(body),
        .take = take_frame,
        .ctx = c,
        .stop = &stop_answer,
    };
    ech_error err;
    const ech_status rc = ech_http_run(&call, &err);
    if (c->in_reasoning && isatty(STDOUT_FILENO) == 1) (void)fputs("\033[0m", stdout);
    (void)putchar('\n');
    if (rc != ECH_OK && rc != ECH_ECANCELLED) (void)printf("(%s)\n", err.text);
    if (call.status != 200 && call.status != 0)
        (void)printf("(HTTP %d: %s)\n", call.status,
                     call.reply.data != NULL ? call.reply.data : "");
    if (c->failure[0] != '\0') (void)printf("(%s)\n", c->failure);
    if (rc == ECH_ECANCELLED) (void)printf("(stopped)\n");
    if (c->text.len > 0) {
        (void)json_array_append_new(
            c->messages, json_pack("{s:s, s:s}", "role", "assistant", "content", c->text.data));
    }
    ech_buf_fini(&call.reply);
    free(body);
}

/* ---- commands ------------------------------------------------------------------------------- */

static void cmd_help(chat *const c, const char *const arg)
{
    (void)c;
    (void)arg;
    (void)printf(
        "/system TEXT   set the system prompt; without TEXT show it\n"
        "/set NAME VALUE  a setting of each request, as /set temperature 0.7; /set shows them\n"
        "/regen         answer the last message again\n"
        "/clear         forget the conversation\n"
        "/save FILE, /load FILE  the conversation as JSON\n"
        "/stats         tokens and times of the last answer\n"
        "/bye           leave (or Ctrl-D)\n"
        "\"\"\"            begins and ends a message of several lines\n"
        "Ctrl-C         stops the answer\n");
}

/* Out of memory: the old one stays. */
static void set_system(chat *const c, const char *const text)
{
    char *const copy = strdup(text);
    if (copy == NULL) return;
    free(c->system);
    c->system = copy;
}

static void cmd_system(chat *const c, const char *const arg)
{
    if (arg[0] == '\0') {
        (void)printf("%s\n", c->system);
    } else {
        set_system(c, arg);
    }
}

/*
 * What is JSON is taken as such (0.7, true, {…}), everything else as a string. No field is
 * checked here: the server says what it doesn't take.
 */
static void cmd_set(chat *const c, const char *const arg)
{
    char name[64];
    int used = 0;
    if (sscanf(arg, "%63s %n", name, &used) != 1) {
        char *const text = json_dumps(c->settings, JSON_INDENT(2));
        (void)printf("%s\n", text != NULL ? text : "");
        free(text);
        return;
    }
    json_error_t why;
    json_t *value = json_loads(arg + used, JSON_DECODE_ANY, &why);
    if (value == NULL) value = json_string(arg + used);
    (void)json_object_set_new(c->settings, name, value);
}

/* Twice in a row works, as does a try after a failure, when the last message is the user's. */
static void cmd_regen(chat *const c, const char *const arg)
{
    (void)arg;
    const size_t n = json_array_size(c->messages);
    const char *const role =
        n > 0 ? json_string_value(json_object_get(json_array_get(c->messages, n - 1), "role"))
              : NULL;
    if (role == NULL) {
        (void)printf("(nothing was said yet)\n");
        return;
    }
    if (strcmp(role, "assistant") == 0) (void)json_array_remove(c->messages, n - 1);
    answer(c);
}

/* Settings and system prompt stay. */
static void cmd_clear(chat *const c, const char *const arg)
{
    (void)arg;
    (void)json_array_clear(c->messages);
}

/* What /load reads. An existing file is written over, as in a shell. */
static void cmd_save(chat *const c, const char *const arg)
{
    json_t *const all = json_pack("{s:s, s:O, s:O}", "system", c->system, "messages", c->messages,
                                  "settings", c->settings);
    const bool ok = arg[0] != '\0' && json_dump_file(all, arg, JSON_INDENT(2)) == 0;
    (void)printf(ok ? "(saved to %s)\n" : "(can't write '%s')\n", arg);
    json_decref(all);
}

/*
 * The file is input: only a list of messages replaces the conversation. Settings are added to
 * those that are there.
 */
static void cmd_load(chat *const c, const char *const arg)
{
    json_error_t why;
    json_t *const all = json_load_file(arg, 0, &why);
    const json_t *const messages = json_object_get(all, "messages");
    if (!json_is_array(messages)) {
        (void)printf("(can't read '%s': %s)\n", arg,
                     all == NULL ? why.text : "it holds no messages");
        json_decref(all);
        return;
    }
    (void)json_array_clear(c->messages);
    (void)json_array_extend(c->messages, (json_t *)messages);
    (void)json_object_update(c->settings, json_object_get(all, "settings"));
    const char *const text = json_string_value(json_object_get(all, "system"));
    if (text != NULL) set_system(c, text);
    json_decref(all);
    (void)printf("(%zu messages)\n", json_array_size(c->messages));
}

/* The rate counts gaps: the first token's time is the prompt's. */
static void cmd_stats(chat *const c, const char *const arg)
{
    (void)arg;
    if (c->first_ns == 0) {
        (void)printf("(no answer yet)\n");
        return;
    }
    const double seconds = (double)(c->last_ns - c->first_ns) * 1e-9;
    (void)printf("prompt %lld tokens, %lld of them reused; answer %lld tokens; first after %.3f s; "
                 "%.1f tokens/s\n",
                 (long long)c->n_prompt, (long long)c->n_cached, (long long)c->n_completion,
                 (double)(c->first_ns - c->start_ns) * 1e-9,
                 seconds > 0 && c->n_completion > 1 ? (double)(c->n_completion - 1) / seconds
                                                    : 0.0);
}

typedef struct chat_command {
    const char *name;
    void (*run)(chat *c, const char *arg);
} chat_command;

static const chat_command COMMANDS[] = {
    { "/help", cmd_help },   { "/system", cmd_system }, { "/set", cmd_set },
    { "/regen", cmd_regen }, { "/clear", cmd_clear },   { "/save", cmd_save },
    { "/load", cmd_load },   { "/stats", cmd_stats },
};

/* False: leave. Names are whole words: /s is no command. */
static bool obey(chat *const c, const char *const line)
{
    const size_t n = strcspn(line, " ");
    if (strcmp(line, "/bye") == 0) return false;
    for (size_t i = 0; i < sizeof COMMANDS / sizeof COMMANDS[0]; i++) {
        if (strlen(COMMANDS[i].name) != n || strncmp(COMMANDS[i].name, line, n) != 0) continue;
        COMMANDS[i].run(c, line + n + strspn(line + n, " "));
        return true;
    }
    (void)printf("(there is no command %.*s; /help lists them)\n", (int)n, line);
    return true;
}

/* ---- the loop ------------------------------------------------------------------------------- */

/*
 * A line without its end, malloc'ed; NULL at the end of the input. A terminal gets editing and
 * history where libedit was there at build time; a pipe is read as lines, without a prompt in
 * the output.
 */
static char *read_input(const char *const prompt)
{
#ifdef ECH_HAVE_LIBEDIT
    if (isatty(STDIN_FILENO) == 1) {
        char *line;
        do { /* Ctrl-C gives the line up, not the program */
            stop_answer = 0;
            line = readline(prompt);
            if (line == NULL && stop_answer != 0) (void)putchar('\n');
        } while (line == NULL && stop_answer != 0);
        if (line != NULL && line[0] != '\0') (void)add_history(line);
        return line;
    }
#endif
    (void)prompt;
    char *line = NULL;
    size_t cap = 0;
    const ssize_t n = getline(&line, &cap, stdin);
    if (n < 0) {
        free(line);
        return NULL;
    }
    if (n > 0 && line[n - 1] == '\n') line[n - 1] = '\0';
    return line;
}

/* The rest of a message that began with """. */
static bool read_block(ech_buf *const message, const char *const first)
{
    if (ech_buf_puts(message, first) != ECH_OK) return false;
    for (char *line; (line = read_input("... ")) != NULL;) {
        char *const end = strstr(line, "\"\"\"");
        if (end != NULL) *end = '\0';
        const bool ok =
            ech_buf_push(message, '\n') == ECH_OK && ech_buf_puts(message, line) == ECH_OK;
        free(line);
        if (end != NULL || !ok) return ok;
    }
    return true;
}

/* Sent at once and kept whatever becomes of it. */
static void say(chat *const c, const char *const text)
{
    (void)json_array_append_new(c->messages,
                                json_pack("{s:s, s:s}", "role", "user", "content", text));
    answer(c);
}

/* An empty line says nothing. The end of the input ends the program with 0. */
static void converse(chat *const c)
{
    for (char *line; (line = read_input(">>> ")) != NULL;) {
        bool more = true;
        if (strncmp(line, "\"\"\"", 3) == 0) {
            ech_buf message = { 0 };
            if (read_block(&message, line + 3)) say(c, message.data);
            ech_buf_fini(&message);
        } else if (line[0] == '/') {
            more = obey(c, line);
        } else if (line[0] != '\0') {
            say(c, line);
        }
        free(line);
        if (!more) return;
    }
}

/*
 * Other users of the machine reach the loopback port, too; they don't know this. 128 bits; it
 * never leaves the process but as a header.
 */
static void random_key(char *const key, const size_t len)
{
    uint8_t bytes[16] = { 0 };
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes) memset(bytes, 7, sizeof bytes);
    for (size_t i = 0; i < sizeof bytes && 2 * i + 2 < len; i++) {
        (void)snprintf(key + 2 * i, 3, "%02x", bytes[i]);
    }
}

/*
 * One row at a time is all that a conversation needs. After a failure *ret_server may be set and
 * is the caller's to close.
 */
static ech_status open_server(chat *const c, ech_server **const ret_server, ech_error *const err)
{
    ech_server_options so;
    ech_server_options_default(&so);
    so.engine.model_dir = model_dir;
    so.engine.threads = (uint32_t)threads;
    so.engine.trace_path = trace;
    ech_take_load_options(&so.engine);
    so.engine.max_running = 1;
    so.port = 0;
    random_key(c->key, sizeof c->key);
    so.api_key = c->key;
    const ech_status rc = ech_server_open(ret_server, &so, err);
    if (rc != ECH_OK) return rc;
    char text[64];
    (void)snprintf(text, sizeof text, "http://127.0.0.1:%d", ech_server_port(*ret_server));
    ECH_TRY(ech_url_open(text, &c->url, err));
    return ech_engine_wait_ready(ech_server_engine(*ret_server), -1, NULL, err);
}

/*
 * enable_thinking is said in both ways to the own server: many templates think unless told not
 * to.
 */
static void take_settings(chat *const c)
{
    if (temperature >= 0)
        (void)json_object_set_new(c->settings, "temperature", json_real(temperature));
    if (top_p >= 0) (void)json_object_set_new(c->settings, "top_p", json_real(top_p));
    if (seed >= 0) (void)json_object_set_new(c->settings, "seed", json_integer(seed));
    if (max_tokens > 0)
        (void)json_object_set_new(c->settings, "max_tokens", json_integer(max_tokens));
    if (model_name != NULL)
        (void)json_object_set_new(c->settings, "model", json_string(model_name));
    /* Another server may not know the field: it is sent where it says something. */
    if (think || url_text == NULL)
        (void)json_object_set_new(c->settings, "chat_template_kwargs",
                                  json_pack("{s:b}", "enable_thinking", (int)think));
}

/*
 * What answers must be, as fields of every request. The flags are read by the same code as
 * generate's, and become members of every request.
 */
static ech_status take_asked(chat *const c, ech_error *const err)
{
    ech_ask ask = { 0 };
    json_error_t why;
    const ech_status rc = ech_ask_read(&ask, &asked, err);
    json_t *const fields =
        rc == ECH_OK ? json_loadb(ask.request.data, ask.request.len, 0, &why) : NULL;
    (void)json_object_update(c->settings, fields);
    json_decref(fields);
    ech_ask_fini(&ask);
    free(asked.choices.items);
    if (reasoning_budget >= 0)
        (void)json_object_set_new(c->settings, "thinking_budget", json_integer(reasoning_budget));
    return rc;
}

/* Everything is released in one place, whichever part was made. */
static int run(const int argc, char **const argv)
{
    if (argc > 0) return ech_usage_error("chat takes no '%s'", argv[0]);
    chat c = { .messages = json_array(),
               .settings = json_object(),
               .system = strdup(system_text != NULL ? system_text : "") };
    ech_server *server = NULL;
    char *served = NULL;
    ech_error err;
    ech_status rc = take_asked(&c, &err);
    if (rc != ECH_OK) {
        /* Said below. */
    } else if (url_text != NULL) {
        rc = ech_url_open(url_text, &c.url, &err);
        (void)snprintf(c.key, sizeof c.key, "%s", api_key != NULL ? api_key : "");
        /* Most servers want a model by name: the first that they list. */
        if (rc == ECH_OK && model_name == NULL)
            model_name = served = ech_http_first_model(&c.url, api_key);
    } else {
        rc = open_server(&c, &server, &err);
    }
    if (rc == ECH_OK) {
        const struct sigaction sa = { .sa_handler = on_interrupt };
        (void)sigaction(SIGINT, &sa, NULL);
        take_settings(&c);
        if (isatty(STDIN_FILENO) == 1) (void)printf("Say something, or /help.\n");
        converse(&c);
    }
    const ech_status closed = ech_server_close(&server);
    ech_url_close(&c.url);
    json_decref(c.messages);
    json_decref(c.settings);
    free(c.system);
    free(served);
    ech_buf_fini(&c.text);
    return rc == ECH_OK ? ech_status_exit(closed) : ech_report(&err);
}

const ech_command ech_cmd_chat = {
    "chat",
    "",
    "chat with a model in the terminal",
    "echelon chat\nechelon chat --url http://127.0.0.1:8080/v1\n"
    "echelon chat --url https://models.example/v1 --ca-file company.pem",
    OPTIONS,
    sizeof OPTIONS / sizeof OPTIONS[0],
    run,
};
