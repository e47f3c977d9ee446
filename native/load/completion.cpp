// SPDX-License-Identifier: MIT
#include "native/load/completion.hpp"

#include <algorithm>
#include <boost/beast/http.hpp>
#include <cstring>
#include <nlohmann/json.hpp>
#include <sstream>

#include "native/common/failure.hpp"

namespace load {
namespace {

namespace http = boost::beast::http;
using Json = nlohmann::json;

constexpr unsigned http_11 = 11;
constexpr uint32_t no_token = UINT32_MAX;

// With the fields of struct generation_request, by the names that vLLM gives them. What is off is
// left out, since vLLM's own defaults are meant then.
Json body(const generation_request &request, const uint8_t *tokens, const std::string &model) {
    std::vector<uint32_t> prompt(request.prompt_count);
    memcpy(prompt.data(), tokens, prompt.size() * TOKEN_SIZE);
    Json json = {
        {"model", model},
        {"prompt", prompt},
        {"max_tokens", request.max_tokens},
        {"temperature", request.temperature},
        {"stream", true},
        {"return_token_ids", true},
        {"ignore_eos", true}, // a stream ends by its limit, or at the token asked for
    };
    if (request.min_tokens)
        json["min_tokens"] = request.min_tokens;
    if (request.priority)
        json["priority"] = request.priority;
    if (request.temperature > 0) {
        json["top_p"] = request.top_p;
        json["top_k"] = request.top_k;
        json["seed"] = request.seed & INT64_MAX;
    }
    if (request.stop_token != no_token)
        json["stop_token_ids"] = {request.stop_token};
    return json;
}

std::vector<uint8_t> post(const Json &body, const std::string &host) {
    http::request<http::string_body> request{http::verb::post, "/v1/completions", http_11};
    request.set(http::field::host, host);
    request.set(http::field::content_type, "application/json");
    request.body() = body.dump();
    request.prepare_payload();
    std::ostringstream text;
    text << request;
    std::string bytes = text.str();
    return {bytes.begin(), bytes.end()};
}

reply_status status_of(unsigned http_status) {
    switch (http_status) {
    case 200:
        return STATUS_OK;
    case 429:
    case 503:
        return STATUS_BUSY;
    default:
        return http_status >= 400 && http_status < 500 ? STATUS_BAD_PAYLOAD : STATUS_INTERNAL;
    }
}

finish_reason reason_of(const Json &text) {
    if (text == "length")
        return FINISH_LENGTH;
    return text == "stop" ? FINISH_STOP : FINISH_ABORT;
}

void append_frame(std::vector<uint8_t> &frames, uint64_t id, const std::vector<uint32_t> &tokens,
                  reply_status status, unsigned flags) {
    reply_header header = {
        .request_id = id,
        .length = static_cast<uint32_t>(tokens.size() * TOKEN_SIZE),
        .status = static_cast<uint16_t>(status),
        .flags = static_cast<uint16_t>(flags),
    };
    auto add = [&](const void *data, size_t size) {
        const auto *bytes = static_cast<const uint8_t *>(data);
        frames.insert(frames.end(), bytes, bytes + size);
    };
    add(&header, sizeof(header));
    add(tokens.data(), header.length);
}

} // namespace

void make_completions(Cases &cases, const std::string &model, const std::string &host) {
    for (Case &one : cases) {
        generation_request request = {};
        size_t size = one.frame.size() - REQUEST_HEADER_SIZE;
        const uint8_t *payload = one.frame.data() + REQUEST_HEADER_SIZE;
        memcpy(&request, payload, std::min(size, sizeof(request)));
        if (!one.streams() || size != sizeof(request) + uint64_t{request.prompt_count} * TOKEN_SIZE)
            throw Failure("making a case a completion", "it does not generate tokens",
                          "Give --cases a file of generation requests, or leave out --openai");
        one.frame = post(body(request, payload + sizeof(request), model), host);
    }
}

struct Completion::Response {
    http::response_parser<http::string_body> parser;
    size_t taken = 0; // of the body
    reply_status status = STATUS_OK;
    finish_reason finish = FINISH_NONE;
    bool done = false; // the event that ends the stream has come
    bool fault = false;

    Response() { parser.eager(true); }

    void take_events(uint64_t id, std::vector<uint8_t> &frames) {
        const std::string &text = parser.get().body();
        for (size_t end; (end = text.find('\n', taken)) != text.npos; taken = end + 1) {
            std::string_view line(text.data() + taken, end - taken);
            if (line.starts_with("data:"))
                take_event(line.substr(strlen("data:")), id, frames);
        }
    }

    void take_event(std::string_view data, uint64_t id, std::vector<uint8_t> &frames) {
        if (data.find("[DONE]") <= 1) { // a space may stand before it
            done = true;
            return;
        }
        try {
            Json event = Json::parse(data);
            if (event.contains("error"))
                status = STATUS_INTERNAL;
            for (const Json &choice : event.value("choices", Json::array()))
                take_choice(choice, id, frames);
        } catch (const Json::exception &) {
            fault = true;
        }
    }

    // Throws Json::exception.
    void take_choice(const Json &choice, uint64_t id, std::vector<uint8_t> &frames) {
        const Json &tokens = choice.at("token_ids"), &reason = choice.at("finish_reason");
        if (!tokens.is_null() && !tokens.empty())
            append_frame(frames, id, tokens.get<std::vector<uint32_t>>(), STATUS_OK, 0);
        if (!reason.is_null())
            finish = reason_of(reason);
    }

    // The reason stands in the last frame, as in the project's protocol; a stream that was cut off
    // before its last event has none.
    void end(uint64_t id, std::vector<uint8_t> &frames) const {
        reply_status told = status_of(parser.get().result_int());
        if (told == STATUS_OK)
            told = status;
        unsigned reason = told == STATUS_OK && done ? finish : FINISH_NONE;
        append_frame(frames, id, {}, told, REPLY_LAST | reason << REPLY_FINISH_SHIFT);
    }
};

Completion::Completion() noexcept = default;
Completion::Completion(Completion &&) noexcept = default;
Completion::~Completion() = default;

void Completion::reset() {
    response_.reset();
}

Completion::Read Completion::read(std::span<const uint8_t> bytes, uint64_t id,
                                  std::vector<uint8_t> &frames) {
    size_t at = 0;
    bool closing = false;
    while (at < bytes.size()) {
        if (!response_)
            response_ = std::make_unique<Response>();
        boost::system::error_code error;
        size_t used =
            response_->parser.put(boost::asio::buffer(bytes.data() + at, bytes.size() - at), error);
        at += used;
        if (error && error != http::error::need_more)
            return {at, true, false};
        response_->take_events(id, frames);
        if (response_->fault)
            return {at, true, false};
        if (response_->parser.is_done()) {
            response_->end(id, frames);
            closing = !response_->parser.keep_alive();
            reset();
        } else if (!used) {
            break;
        }
    }
    return {at, false, closing};
}

} // namespace load
