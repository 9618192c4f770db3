// The small decisions of `serve` that can be checked without serving. Pure.
#pragma once

#include <string>
#include <string_view>

namespace pocketfleet::cli {

// Whether only this machine can reach an address: "localhost", 127.0.0.0/8 written as an address, or ::1.
bool is_loopback(std::string_view host);

// The file's name without folders and .gguf.
std::string model_name_of(std::string_view path);

// "http://127.0.0.1:8080", with brackets around IPv6 addresses.
std::string url_of(std::string_view host, int port);

}  // namespace pocketfleet::cli
