/* SPDX-License-Identifier: MIT */
#include <map>
#include <string>

std::map<std::string, int> table{{"one", 1}, {"two", 2}};
