#!/usr/bin/env python3
"""The public clients against a running server: openai (sync, async, streams, raw and parsed), anthropic,
langchain-openai, litellm. What is missing is skipped by name."""
import asyncio
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cases import case, need, run, skip

SUM = [{"role": "user", "content": "What is 12 + 6?"}]
ASK = [{"role": "user", "content": "What is the weather in Rome and in Cairo?"}]
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL = {"type": "function", "function": {"name": "get_weather", "description": "weather of a city", "parameters": CITY}}
ROME_CAIRO = [("get_weather", {"city": "Rome"}), ("get_weather", {"city": "Cairo"})]
GREEDY = {"model": "tale", "temperature": 0}


def base(s):
    return f"http://127.0.0.1:{s.port}/v1"


def calls_of(message):
    return [(c.function.name, json.loads(c.function.arguments)) for c in message.tool_calls]


@case("openai.sync")
def openai_sync(s):
    openai = need("openai")
    with openai.OpenAI(base_url=base(s), api_key="none", max_retries=0) as client:
        assert [m.id for m in client.models.list()] == ["tale"] and client.models.retrieve("tale").id == "tale"
        whole = client.chat.completions.create(messages=SUM, **GREEDY)
        assert "18" in whole.choices[0].message.content and whole.usage.total_tokens > 0
        text = ""
        for chunk in client.chat.completions.create(messages=SUM, stream=True, stream_options={"include_usage": True}, **GREEDY):
            text += chunk.choices[0].delta.content or "" if chunk.choices else ""
            usage = chunk.usage
        assert text == whole.choices[0].message.content and usage.completion_tokens == whole.usage.completion_tokens
        raw = client.chat.completions.with_raw_response.create(messages=SUM, **GREEDY)
        assert raw.headers["x-request-id"] == raw.request_id and raw.parse().id.endswith(raw.request_id)
        with client.chat.completions.with_streaming_response.create(messages=SUM, stream=True, **GREEDY) as r:
            assert r.headers["content-type"].startswith("text/event-stream") and list(r.iter_lines())[-2:] == ["data: [DONE]", ""]
        done = client.completions.create(prompt="Once upon a time", max_tokens=8, logprobs=1, **GREEDY).choices[0]
        streamed = "".join(c.choices[0].text for c in client.completions.create(prompt="Once upon a time", max_tokens=8, stream=True, **GREEDY))
        assert done.text == streamed and len(done.logprobs.tokens) == 8


@case("openai.tools")
def openai_tools(s):
    openai = need("openai")
    client = openai.OpenAI(base_url=base(s), api_key="none", max_retries=0)
    first = client.chat.completions.create(messages=ASK, tools=[TOOL], **GREEDY).choices[0]
    assert first.finish_reason == "tool_calls" and calls_of(first.message) == ROME_CAIRO
    with client.chat.completions.stream(messages=ASK, tools=[TOOL], **GREEDY) as stream:
        kinds = {e.type for e in stream}
        assert calls_of(stream.get_final_completion().choices[0].message) == ROME_CAIRO
    assert {"tool_calls.function.arguments.delta", "tool_calls.function.arguments.done", "chunk"} <= kinds, kinds
    with client.chat.completions.stream(messages=SUM, **GREEDY) as stream:
        kinds = [e.type for e in stream]
    assert "content.delta" in kinds and kinds[-1] == "content.done", kinds
    answers = [{"role": "tool", "tool_call_id": c.id, "content": '{"weather": "sunny"}'} for c in first.message.tool_calls]
    after = client.chat.completions.create(messages=[*ASK, first.message, *answers], tools=[TOOL], **GREEDY).choices[0]
    assert after.finish_reason == "stop" and after.message.content


@case("openai.parsed")
def openai_parsed(s):
    openai, pydantic = need("openai"), need("pydantic")

    class Cat(pydantic.BaseModel):
        name: str
        age: int

    client = openai.OpenAI(base_url=base(s), api_key="none", max_retries=0)
    ask = [{"role": "user", "content": "Describe a cat named Mia, 4 years old, as JSON."}]
    got = client.chat.completions.parse(messages=ask, response_format=Cat, max_tokens=200, **GREEDY).choices[0].message
    assert isinstance(got.parsed, Cat) and got.parsed.name, got
    with client.chat.completions.stream(messages=ask, response_format=Cat, max_tokens=200, **GREEDY) as stream:
        assert stream.until_done().get_final_completion().choices[0].message.parsed == got.parsed
    tool = openai.pydantic_function_tool(Cat, name="store_cat", description="keep a cat")
    call = client.chat.completions.parse(messages=ask, tools=[tool], tool_choice="required", max_tokens=200, **GREEDY).choices[0].message.tool_calls[0]
    assert isinstance(call.function.parsed_arguments, Cat)
    parsed = client.responses.parse(input="Describe a cat named Mia, 4 years old, as JSON.", text_format=Cat, max_output_tokens=200, **GREEDY)
    assert isinstance(parsed.output_parsed, Cat), parsed


@case("openai.responses")
def openai_responses(s):
    openai = need("openai")
    client = openai.OpenAI(base_url=base(s), api_key="none", max_retries=0)
    whole = client.responses.create(input="What is 12 + 6?", instructions="Be brief.", **GREEDY)
    assert "18" in whole.output_text and whole.status == "completed" and whole.usage.output_tokens > 0
    events = list(client.responses.create(input="What is 12 + 6?", instructions="Be brief.", stream=True, **GREEDY))
    assert events[0].type == "response.created" and events[-1].type == "response.completed"
    assert events[-1].response.output_text == whole.output_text
    with client.responses.stream(input="What is 12 + 6?", instructions="Be brief.", **GREEDY) as stream:
        assert "".join(e.delta for e in stream if e.type == "response.output_text.delta") == whole.output_text
        assert stream.get_final_response().output_text == whole.output_text
    flat = {"type": "function", "name": "get_weather", "parameters": CITY, "strict": False, "description": "weather of a city"}
    with client.responses.stream(input=ASK[0]["content"], tools=[flat], **GREEDY) as stream:
        done = [e for e in stream if e.type == "response.function_call_arguments.done"]
        final = stream.get_final_response()
    assert [json.loads(e.arguments) for e in done] == [{"city": "Rome"}, {"city": "Cairo"}]
    calls = [i for i in final.output if i.type == "function_call"]
    items = [{"role": "user", "content": ASK[0]["content"]}, *calls, *({"type": "function_call_output", "call_id": c.call_id, "output": '{"weather": "sunny"}'} for c in calls)]
    after = client.responses.create(input=items, tools=[flat], **GREEDY)
    assert after.output_text, after


@case("openai.async")
def openai_async(s):
    openai = need("openai")

    async def main():
        async with openai.AsyncOpenAI(base_url=base(s), api_key="none", max_retries=0) as client:
            whole = (await client.chat.completions.create(messages=SUM, **GREEDY)).choices[0].message.content

            async def one():
                stream = await client.chat.completions.create(messages=SUM, stream=True, **GREEDY)
                return "".join([c.choices[0].delta.content or "" async for c in stream])
            assert await asyncio.gather(*(one() for _ in range(16))) == [whole] * 16
            async with client.chat.completions.stream(messages=ASK, tools=[TOOL], **GREEDY) as stream:
                async for _ in stream:
                    pass
                assert calls_of((await stream.get_final_completion()).choices[0].message) == ROME_CAIRO
            async with client.responses.stream(input="What is 12 + 6?", **GREEDY) as stream:
                assert "18" in (await stream.get_final_response()).output_text
            # A client that walks away from a stream: the connection is closed, the request ends.
            stream = await client.chat.completions.create(messages=SUM, stream=True, max_tokens=4000, extra_body={"ignore_eos": True}, **GREEDY)
            async for _ in stream:
                break
            await stream.close()
        assert s.wait_metric("num_requests_running", 0)
    asyncio.run(main())


@case("openai.errors")
def openai_errors(s):
    openai = need("openai")
    client = openai.OpenAI(base_url=base(s), api_key="none", max_retries=0)

    def raises(kind, f, param=None):
        try:
            f()
        except kind as e:
            assert e.request_id and e.body["message"], e.body
            assert param is None or e.param == param, e.param
            return
        raise AssertionError(kind)
    chat = client.chat.completions.create
    raises(openai.NotFoundError, lambda: chat(model="gpt-9", messages=SUM), "model")
    raises(openai.BadRequestError, lambda: chat(model="tale", messages=SUM, temperature=-1), "temperature")
    raises(openai.BadRequestError, lambda: chat(model="tale", messages=[]), "messages")
    raises(openai.BadRequestError, lambda: client.completions.create(model="tale", prompt=[1] * 5000))
    raises(openai.NotFoundError, lambda: client.models.retrieve("gpt-9"))
    image = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]}]
    raises(openai.BadRequestError, lambda: chat(model="tale", messages=image))


@case("openai.embeddings")
def openai_embeddings(s):
    openai = need("openai")
    client = openai.OpenAI(base_url=base(s), api_key="none", max_retries=0)
    if s.call("POST", "/v1/embeddings", {"input": "a"})[0] == 404:
        skip("this server has no /v1/embeddings")
    both = client.embeddings.create(model="tale", input=["a fox", "the moon"]).data  # the SDK asks for base64
    plain = client.embeddings.create(model="tale", input="a fox", encoding_format="float").data[0].embedding
    assert len(both) == 2 and len(both[0].embedding) == len(plain)
    assert max(abs(a - b) for a, b in zip(both[0].embedding, plain)) < 1e-6
    assert abs(sum(x * x for x in plain) - 1) < 1e-3
    assert len(client.embeddings.create(model="tale", input="a fox", dimensions=8).data[0].embedding) == 8


@case("anthropic")
def anthropic(s):
    lib = need("anthropic")
    client = lib.Anthropic(base_url=f"http://127.0.0.1:{s.port}", api_key="none", max_retries=0)
    ask = {"model": "tale", "max_tokens": 200, "messages": SUM}
    whole = client.messages.create(**ask, extra_body={"temperature": 0})
    assert "18" in whole.content[0].text and whole.stop_reason == "end_turn" and whole.usage.output_tokens > 0
    with client.messages.stream(**ask, extra_body={"temperature": 0}) as stream:
        assert "".join(stream.text_stream) == whole.content[0].text
        assert stream.get_final_message().stop_reason == "end_turn"
    tool = {"name": "get_weather", "description": "weather of a city", "input_schema": CITY}
    with client.messages.stream(model="tale", max_tokens=200, messages=ASK, tools=[tool], extra_body={"temperature": 0}) as stream:
        final = stream.get_final_message()
    uses = [b for b in final.content if b.type == "tool_use"]
    assert [(b.name, b.input) for b in uses] == ROME_CAIRO and final.stop_reason == "tool_use"
    results = [{"type": "tool_result", "tool_use_id": b.id, "content": '{"weather": "sunny"}'} for b in uses]
    history = [*ASK, {"role": "assistant", "content": final.content}, {"role": "user", "content": results}]
    after = client.messages.create(model="tale", max_tokens=200, messages=history, tools=[tool], system="Be brief.", extra_body={"temperature": 0})
    assert after.stop_reason == "end_turn" and after.content[0].text
    assert client.messages.count_tokens(model="tale", messages=SUM).input_tokens > 5
    try:
        client.messages.create(model="gpt-9", max_tokens=5, messages=SUM)
        raise AssertionError("an unknown model was taken")
    except lib.NotFoundError as e:
        assert e.request_id


@case("langchain")
def langchain(s):
    lib = need("langchain_openai")
    need("pydantic")
    model = lib.ChatOpenAI(base_url=base(s), api_key="none", model="tale", temperature=0, max_retries=0, max_tokens=200)
    whole = model.invoke("What is 12 + 6?")
    assert "18" in whole.content and whole.usage_metadata["output_tokens"] > 0
    assert "".join(c.content for c in model.stream("What is 12 + 6?")) == whole.content
    assert [(c["name"], c["args"]) for c in model.bind_tools([TOOL]).invoke(ASK).tool_calls] == ROME_CAIRO
    cat = {"title": "Cat", "type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}, "required": ["name", "age"]}
    got = model.with_structured_output(cat, method="json_schema").invoke("Describe a cat named Mia, 4 years old, as JSON.")
    assert set(got) == {"name", "age"}, got
    text = lib.OpenAI(base_url=base(s), api_key="none", model="tale", temperature=0, max_retries=0, max_tokens=8)
    assert text.invoke("Once upon a time") == "".join(text.stream("Once upon a time"))
    responses = lib.ChatOpenAI(base_url=base(s), api_key="none", model="tale", temperature=0, max_retries=0, use_responses_api=True)
    assert "18" in responses.invoke("What is 12 + 6?").text


@case("litellm")
def litellm(s):
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # or it asks the network for prices
    lib = need("litellm")
    lib.suppress_debug_info = True
    ask = {"model": "openai/tale", "api_base": base(s), "api_key": "none", "temperature": 0, "max_tokens": 200, "num_retries": 0}
    whole = lib.completion(messages=SUM, **ask)
    assert "18" in whole.choices[0].message.content
    chunks = list(lib.completion(messages=SUM, stream=True, stream_options={"include_usage": True}, **ask))
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == whole.choices[0].message.content
    built = lib.stream_chunk_builder(list(lib.completion(messages=ASK, tools=[TOOL], stream=True, **ask)))
    assert calls_of(built.choices[0].message) == ROME_CAIRO
    assert lib.text_completion(prompt="Once upon a time", **{**ask, "model": "text-completion-openai/tale", "max_tokens": 8}).choices[0].text
    assert "18" in asyncio.run(lib.acompletion(messages=SUM, **ask)).choices[0].message.content
    try:
        lib.completion(messages=SUM, **{**ask, "model": "openai/gpt-9"})
        raise AssertionError("an unknown model was taken")
    except lib.NotFoundError:
        pass


if __name__ == "__main__":
    run()
