/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The answers' schemas, as JSON Schema 2020-12: what the dialects write, no less. Members that an
 * answer has only at times are not required.
 *
 * Written by hand, beside the dialects and not made from them: a test asks a server and holds
 * what it answers against these. One source of text, parsed when it is asked for. Answers may
 * have more members than are named here; streams have no schema, since OpenAPI can't say one of
 * events. Pure; any thread.
 */
#include <jansson.h>

#include "src/server/openapi.h"

/* Stringified, so that the schemas read as JSON; commas outside of braces belong to it too. */
#define JSON(...) #__VA_ARGS__

/* clang-format off */
static const struct {
    const char *name, *schema;
} SCHEMAS[] = {
    { "Error", JSON({
        "type": "object", "required": ["error"], "properties": {
            "error": { "type": "object", "required": ["message", "type", "param", "code"], "properties": {
                "message": { "type": "string" }, "type": { "type": "string" },
                "param": { "type": ["string", "null"] }, "code": { "type": ["string", "null"] } } } } }) },
    { "Unready", JSON({
        "anyOf": [ { "$ref": "#/components/schemas/Health" }, { "$ref": "#/components/schemas/Error" } ] }) },
    { "Health", JSON({
        "type": "object", "required": ["status"], "properties": {
            "status": { "enum": ["ok", "live", "loading", "draining"] },
            "progress": { "type": "number", "minimum": 0, "maximum": 1 } } }) },
    { "Document", JSON({ "type": "object", "required": ["openapi", "paths"] }) },
    { "Version", JSON({
        "type": "object", "required": ["version"], "properties": { "version": { "type": "string" } } }) },
    { "Props", JSON({
        "type": "object", "required": ["version", "model", "max_seq_len", "limits"], "properties": {
            "version": { "type": "string" }, "model": { "type": "string" }, "plan": { "type": "string" },
            "max_seq_len": { "type": "integer" }, "max_running": { "type": "integer" },
            "limits": { "type": "object", "additionalProperties": { "type": "integer" } } } }) },
    { "Model", JSON({
        "type": "object", "required": ["id", "object", "created", "owned_by"], "properties": {
            "id": { "type": "string" }, "object": { "const": "model" }, "created": { "type": "integer" },
            "owned_by": { "type": "string" }, "max_model_len": { "type": "integer" }, "meta": { "type": "object" } } }) },
    { "Models", JSON({
        "type": "object", "required": ["object", "data"], "properties": {
            "object": { "const": "list" }, "data": { "type": "array", "items": { "$ref": "#/components/schemas/Model" } } } }) },
    { "Requests", JSON({
        "type": "object", "required": ["object", "data"], "properties": {
            "object": { "const": "list" }, "data": { "type": "array", "items": {
                "type": "object", "required": ["id", "state", "age_ms", "prompt_tokens", "completion_tokens", "key"], "properties": {
                    "id": { "type": "string" }, "state": { "enum": ["running", "queued"] }, "age_ms": { "type": "integer" },
                    "prompt_tokens": { "type": "integer" }, "completion_tokens": { "type": "integer" },
                    "key": { "type": "string" } } } } } }) },
    { "Tokens", JSON({
        "type": "object", "required": ["count", "max_model_len", "tokens"], "properties": {
            "count": { "type": "integer" }, "max_model_len": { "type": "integer" },
            "tokens": { "type": "array", "items": { "type": "integer" } } } }) },
    { "Text", JSON({
        "type": "object", "required": ["content", "prompt"], "properties": {
            "content": { "type": "string" }, "prompt": { "type": "string" } } }) },
    { "Prompt", JSON({
        "type": "object", "required": ["prompt", "token_ids", "count"], "properties": {
            "prompt": { "type": "string" }, "token_ids": { "type": "array", "items": { "type": "integer" } },
            "count": { "type": "integer" } } }) },
    { "InputTokens", JSON({
        "type": "object", "required": ["input_tokens"], "properties": { "input_tokens": { "type": "integer", "minimum": 0 } } }) },
    { "Embeddings", JSON({
        "type": "object", "required": ["object", "data", "model", "usage"], "properties": {
            "object": { "const": "list" }, "model": { "type": "string" },
            "data": { "type": "array", "items": {
                "type": "object", "required": ["object", "index", "embedding"], "properties": {
                    "object": { "const": "embedding" }, "index": { "type": "integer", "minimum": 0 },
                    "embedding": { "anyOf": [ { "type": "array", "items": { "type": "number" } }, { "type": "string" } ] } } } },
            "usage": { "type": "object", "required": ["prompt_tokens", "total_tokens"], "properties": {
                "prompt_tokens": { "type": "integer" }, "total_tokens": { "type": "integer" } } } } }) },
    { "Usage", JSON({
        "type": "object", "required": ["prompt_tokens", "completion_tokens", "total_tokens"], "properties": {
            "prompt_tokens": { "type": "integer", "minimum": 0 }, "completion_tokens": { "type": "integer", "minimum": 0 },
            "total_tokens": { "type": "integer", "minimum": 0 }, "prompt_tokens_details": { "type": "object" },
            "completion_tokens_details": { "type": "object" } } }) },
    { "TokenProb", JSON({
        "type": "object", "required": ["token", "logprob", "bytes"], "properties": {
            "token": { "type": "string" }, "logprob": { "type": "number", "maximum": 0 },
            "bytes": { "type": "array", "items": { "type": "integer", "minimum": 0, "maximum": 255 } },
            "top_logprobs": { "type": "array", "items": { "$ref": "#/components/schemas/TokenProb" } } } }) },
    { "ToolCall", JSON({
        "type": "object", "required": ["id", "type", "function"], "properties": {
            "id": { "type": "string" }, "type": { "const": "function" },
            "function": { "type": "object", "required": ["name", "arguments"], "properties": {
                "name": { "type": "string" }, "arguments": { "type": "string" } } } } }) },
    { "ChatCompletion", JSON({
        "type": "object", "required": ["id", "object", "created", "model", "choices", "usage"], "properties": {
            "id": { "type": "string", "pattern": "^chatcmpl-" }, "object": { "const": "chat.completion" },
            "created": { "type": "integer" }, "model": { "type": "string" }, "system_fingerprint": { "type": "string" },
            "usage": { "$ref": "#/components/schemas/Usage" },
            "choices": { "type": "array", "minItems": 1, "items": {
                "type": "object", "required": ["index", "message", "logprobs", "finish_reason"], "properties": {
                    "index": { "type": "integer" }, "finish_reason": { "enum": ["stop", "length", "tool_calls"] },
                    "logprobs": { "type": ["object", "null"], "required": ["content", "refusal"], "properties": {
                        "content": { "type": "array", "items": { "$ref": "#/components/schemas/TokenProb" } } } },
                    "token_ids": { "type": "array", "items": { "type": "integer" } },
                    "message": { "type": "object", "required": ["role", "content", "refusal"], "properties": {
                        "role": { "const": "assistant" }, "content": { "type": ["string", "null"] }, "refusal": { "type": "null" },
                        "reasoning_content": { "type": "string" }, "reasoning": { "type": "string" },
                        "tool_calls": { "type": "array", "minItems": 1, "items": { "$ref": "#/components/schemas/ToolCall" } } } } } } } } }) },
    { "Completion", JSON({
        "type": "object", "required": ["id", "object", "created", "model", "choices", "usage"], "properties": {
            "id": { "type": "string", "pattern": "^cmpl-" }, "object": { "const": "text_completion" },
            "created": { "type": "integer" }, "model": { "type": "string" },
            "usage": { "$ref": "#/components/schemas/Usage" },
            "choices": { "type": "array", "minItems": 1, "items": {
                "type": "object", "required": ["index", "text", "logprobs", "finish_reason"], "properties": {
                    "index": { "type": "integer" }, "text": { "type": "string" }, "finish_reason": { "enum": ["stop", "length"] },
                    "token_ids": { "type": "array", "items": { "type": "integer" } },
                    "logprobs": { "type": ["object", "null"], "required": ["tokens", "token_logprobs", "top_logprobs", "text_offset"], "properties": {
                        "tokens": { "type": "array", "items": { "type": "string" } },
                        "token_logprobs": { "type": "array", "items": { "type": ["number", "null"] } },
                        "top_logprobs": { "type": "array", "items": { "type": ["object", "null"] } },
                        "text_offset": { "type": "array", "items": { "type": "integer" } } } } } } } } }) },
    { "Response", JSON({
        "type": "object", "required": ["id", "object", "created_at", "model", "status", "output"], "properties": {
            "id": { "type": "string", "pattern": "^resp_" }, "object": { "const": "response" }, "created_at": { "type": "integer" },
            "model": { "type": "string" }, "status": { "enum": ["completed", "incomplete"] },
            "output": { "type": "array", "items": { "type": "object", "required": ["type", "id"], "properties": {
                "type": { "enum": ["message", "reasoning", "function_call"] }, "id": { "type": "string" } } } } } }) },
    { "Message", JSON({
        "type": "object", "required": ["id", "type", "role", "model", "content", "stop_reason", "stop_sequence", "usage"], "properties": {
            "id": { "type": "string", "pattern": "^msg_" }, "type": { "const": "message" }, "role": { "const": "assistant" },
            "model": { "type": "string" }, "stop_reason": { "enum": ["end_turn", "max_tokens", "stop_sequence", "tool_use"] },
            "stop_sequence": { "type": ["string", "null"] },
            "content": { "type": "array", "items": { "type": "object", "required": ["type"], "properties": {
                "type": { "enum": ["text", "thinking", "tool_use"] } } } },
            "usage": { "type": "object", "required": ["input_tokens", "output_tokens"], "properties": {
                "input_tokens": { "type": "integer" }, "output_tokens": { "type": "integer" } } } } }) },
};
/* clang-format on */

/* A new reference. */
json_t *ech_openapi_schemas(void)
{
    json_t *const all = json_object();
    for (size_t i = 0; i < sizeof SCHEMAS / sizeof SCHEMAS[0]; i++) {
        (void)json_object_set_new(all, SCHEMAS[i].name, json_loads(SCHEMAS[i].schema, 0, NULL));
    }
    return all;
}
