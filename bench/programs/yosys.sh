#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# yosys turns a small processor's arithmetic unit, written in Verilog, into gates.
#
# Imitates: logic synthesis and other compilers written in C++ with dictionaries of shared strings.
# Cells, wires and signals are vectors and hash tables of some ten to thousand bytes.
#
# Does not show: place and route, the separate program abc.
#
# packages: yosys
here=${0%"${0##*/}"}
. "${here:-./}common.sh"
needs=(yosys)

make_inputs() {
    cat >unit.v <<'EOF'
module unit(input clk, input [3:0] op, input [31:0] a, input [31:0] b, input [4:0] at,
            output reg [31:0] out, output reg flag);
    reg [31:0] file [0:15];
    wire [31:0] product = a[15:0] * b[15:0];
    always @(posedge clk) begin
        file[at[3:0]] <= out;
        case (op)
            0: out <= a + b;
            1: out <= a - b;
            2: out <= product;
            3: out <= a << b[4:0];
            4: out <= a >> b[4:0];
            5: out <= $signed(a) >>> b[4:0];
            6: out <= {31'b0, $signed(a) < $signed(b)};
            7: out <= file[b[3:0]] ^ a;
            8: out <= {a[7:0], a[15:8], a[23:16], a[31:24]};
            default: out <= a & ~b;
        endcase
        flag <= ^out;
    end
endmodule
EOF
}

run_program() {
    exec yosys -q -p "read_verilog $inputs/unit.v; hierarchy -top unit; proc; opt; memory; opt;
        techmap; opt; simplemap; opt -full; stat" >/dev/null </dev/null
}

main "$@"
