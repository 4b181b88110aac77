#include "options.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "text.h"

namespace emulator {
namespace {

bool parse_number(std::string_view digits, std::uint64_t& number) {
    const char* end = digits.data() + digits.size();
    auto [rest, error] = std::from_chars(digits.data(), end, number);
    return error == std::errc() && rest == end;
}

/// Reads a whole number of at least 1 from the environment, if the variable is set.
template <typename T>
void read_number(const char* name, T& value, std::string& error) {
    const char* setting = std::getenv(name);
    if (setting == nullptr) return;
    std::uint64_t number = 0;
    if (!parse_number(setting, number) || number == 0 || !std::in_range<T>(number)) {
        error =
            text("%s must be a whole number of at least 1, not '%s'", name, setting);
        return;
    }
    value = static_cast<T>(number);
}

void read_order(Options& options) {
    const char* setting = std::getenv("TWIN_EMULATOR_ORDER");
    if (setting == nullptr) return;
    std::string_view order = setting;
    constexpr std::string_view RANDOM = "random:";
    if (order == "forward") {
        options.order = Order::forward;
    } else if (order == "reverse") {
        options.order = Order::reverse;
    } else if (
        order.starts_with(RANDOM) &&
        parse_number(order.substr(RANDOM.size()), options.seed)
    ) {
        options.order = Order::random;
    } else {
        options.error = text(
            "TWIN_EMULATOR_ORDER must be forward, reverse or random:SEED, not '%s'",
            setting
        );
    }
}

void read_async(Options& options) {
    const char* setting = std::getenv("TWIN_EMULATOR_ASYNC");
    if (setting == nullptr) return;
    std::string_view time = setting;
    options.late_copies = time == "late";
    if (time == "late" || time == "eager") return;
    options.error =
        text("TWIN_EMULATOR_ASYNC must be eager or late, not '%s'", setting);
}

}  // namespace

Options read_options() {
    Options options;
    options.workers = std::max(1u, std::thread::hardware_concurrency());
    read_number("TWIN_EMULATOR_WORKERS", options.workers, options.error);
    read_number("TWIN_EMULATOR_STEP_LIMIT", options.step_limit, options.error);
    read_number("TWIN_EMULATOR_TIME_LIMIT", options.time_limit_seconds, options.error);
    read_order(options);
    read_async(options);
    return options;
}

}  // namespace emulator
