/* SPDX-License-Identifier: MIT */
/* site_example.cc: the example of docs/observability/profile.md: a small index of words that names
 * the sites of its memory. Its arguments are the words. */
#include <hakmem/profile.h>
#include <hakmem/site.h>

#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace
{

struct by_hak_free {
    void operator()(void *block) const
    {
        hak_free(block);
    }
};

class index_of_words
{
  public:
    void add(const std::string &word, size_t place)
    {
        const hak::site_scope scope(HAK_SITE("index")); /* until the end of this function */
        places_[word].push_back(place);
        HAK_SITE_SCOPE("index.text"); /* inner scopes win */
        text_ += word + ' ';
    }

    size_t count() const
    {
        return places_.size();
    }

  private:
    std::map<std::string, std::vector<size_t>> places_;
    std::string text_;
};

void print(void *, const char *text, size_t size)
{
    fwrite(text, 1, size, stdout);
}

} // namespace

int main(int count, char **words)
{
    hak_profile_start(1); /* samples every block; a service leaves the period to hakmem: 0 */
    index_of_words index;
    for (int round = 0; round < 1000; round++) {
        for (int i = 1; i < count; i++) {
            index.add(words[i] + std::to_string(round), static_cast<size_t>(i));
        }
    }
    const std::unique_ptr<void, by_hak_free> buffer(HAK_MALLOC_AT("buffer", 2 << 20));
    if (buffer == nullptr) {
        return 1;
    }
    memset(buffer.get(), 0, 2 << 20);
    hak_report(HAK_REPORT_SUMMARY, print, nullptr);
    return index.count() == 1000 * static_cast<size_t>(count - 1) ? 0 : 1;
}
