// SPDX-License-Identifier: MIT
// Builds one JSON object; values of other types are nested objects and lists made the same way.
#pragma once

#include <charconv>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

namespace load {

inline std::string json_string(std::string_view text) {
    std::string result = "\"";
    for (char c : text) {
        char escaped[8];
        bool control = static_cast<unsigned char>(c) < 0x20;
        snprintf(escaped, sizeof(escaped), "\\u%04x", c);
        if (c == '"' || c == '\\')
            result += '\\';
        result += control ? std::string(escaped) : std::string(1, c);
    }
    return result + '"';
}

class JsonObject {
  public:
    JsonObject &add(std::string_view key, std::string_view text) {
        return raw(key, json_string(text));
    }
    JsonObject &add(std::string_view key, const char *text) { return raw(key, json_string(text)); }
    JsonObject &add(std::string_view key, bool value) { return raw(key, value ? "true" : "false"); }
    JsonObject &add(std::string_view key, std::integral auto value) {
        return raw(key, std::to_string(value));
    }
    JsonObject &add(std::string_view key, double value) {
        char text[32]; // the shortest text that reads back as the same number
        char *end = std::to_chars(text, std::end(text), value).ptr;
        return raw(key, std::isfinite(value) ? std::string(text, end) : "null");
    }
    JsonObject &add(std::string_view key, const JsonObject &object) {
        return raw(key, object.text());
    }
    JsonObject &add(std::string_view key, const std::vector<std::string> &list) {
        std::string text;
        for (const std::string &entry : list)
            text += (text.empty() ? "" : ", ") + json_string(entry);
        return raw(key, "[" + text + "]");
    }
    JsonObject &add_null(std::string_view key) { return raw(key, "null"); }

    // With each member on a line of its own.
    std::string lines() const { return "{\n  " + join(",\n  ") + "\n}\n"; }
    std::string text() const { return "{" + join(", ") + "}"; }

  private:
    JsonObject &raw(std::string_view key, std::string value) {
        members_.push_back(json_string(key) + ": " + std::move(value));
        return *this;
    }
    std::string join(std::string_view separator) const {
        std::string result;
        for (size_t i = 0; i < members_.size(); ++i)
            result.append(i ? separator : "").append(members_[i]);
        return result;
    }
    std::vector<std::string> members_;
};

} // namespace load
