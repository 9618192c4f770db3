// The small decisions of `serve` that can be checked without serving. Pure.
#pragma once

#include <string>
#include <string_view>

namespace pocketfleet::cli {

// Whether only this machine can reach an address: "localhost", 127.0.0.0/8 written as an address, or ::1.
bool is_loopback(std::string_view host);

// The file's name without folders and .gguf.
std::string model_name_of(std::string_view path);

// A folder of this model's own in the user's cache: under `xdg_cache`, or `home`/.cache. Empty when neither is an absolute path.
std::string default_checkpoint_folder(std::string_view absolute_model_path, std::string_view xdg_cache, std::string_view home);

// "http://127.0.0.1:8080", with brackets around IPv6 addresses.
std::string url_of(std::string_view host, int port);

}  // namespace pocketfleet::cli
