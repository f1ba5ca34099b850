/* SPDX-License-Identifier: MIT */
/* shop.cc: the server of docs/growing.md, which grows. It plays its own customers. -DFIXED compiles
 * the version that does not grow. Usage: ./shop SECONDS */
#include <chrono>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <thread>

namespace
{

struct article {
    std::unique_ptr<article> next;
    char text[300];
};

struct session {
    std::string user;
    std::unique_ptr<article> basket;
};

std::map<long, std::shared_ptr<session>> by_id;
std::map<std::string, std::map<long, std::shared_ptr<session>>> by_user;
std::map<long, std::string> page_cache;

session &log_in(long id)
{
    auto made = std::make_shared<session>();
    made->user = "customer " + std::to_string(id % 1000);
    by_id[id] = made;
    by_user[made->user][id] = made;
    return *made;
}

void look_at_page(long number)
{
    std::string &page = page_cache[number % 500];
    if (page.empty()) {
        page = std::string(32000, 'p');
    }
}

void buy(session &customer)
{
    auto bought = std::make_unique<article>();
    bought->next = std::move(customer.basket);
    customer.basket = std::move(bought);
}

void log_out(long id)
{
#ifdef FIXED
    by_user[by_id[id]->user].erase(id);
#endif
    by_id.erase(id);
}

} // namespace

int main(int, char **words)
{
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(std::atoi(words[1]));
    for (long id = 0; std::chrono::steady_clock::now() < end; id++) {
        session &customer = log_in(id);
        for (long i = 0; i < 5; i++) {
            look_at_page(id * 7 + i);
            buy(customer);
        }
        std::this_thread::sleep_for(std::chrono::microseconds(500));
        log_out(id);
    }
    std::quick_exit(0); // like many servers, it ends without destroying its tables
}
