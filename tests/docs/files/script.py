# SPDX-License-Identifier: MIT
table = {str(i): "x" * (i % 100) for i in range(20000)}
print(len(table))
