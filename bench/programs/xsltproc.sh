#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# xsltproc turns an XML document of some MB into HTML.
#
# Imitates: documentation builds, feeds, office formats. libxml2 makes a malloc call for every node,
# attribute and text; XPath results and the output tree are more of them.
#
# Does not show: documents that are read as a stream.
#
# packages: xsltproc gawk
here=${0%"${0##*/}"}
. "${here:-./}common.sh"
needs=(xsltproc gawk)

make_inputs() {
    gawk 'BEGIN {
        print "<list>"
        for (i = 0; i < 40000; i++) {
            state = (state * 1103 + 12345) % 1000003
            printf "<entry id=\"e%d\" group=\"g%d\"><name>entry %d</name>", i, state % 31, state
            printf "<part size=\"%d\">text %d</part>", state % 100, i
            printf "<part size=\"%d\"/></entry>\n", i % 7
        }
        print "</list>"
    }' >list.xml
    cat >style.xsl <<'EOF'
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
<xsl:key name="group" match="entry" use="@group"/>
<xsl:template match="/list">
<html><body>
<xsl:for-each select="entry[generate-id() = generate-id(key('group', @group)[1])]">
<xsl:sort select="@group"/>
<xsl:variable name="members" select="key('group', @group)"/>
<h1><xsl:value-of select="@group"/>: <xsl:value-of select="sum($members/part/@size)"/></h1>
<table><xsl:apply-templates select="$members"><xsl:sort select="name"/></xsl:apply-templates></table>
</xsl:for-each>
</body></html>
</xsl:template>
<xsl:template match="entry">
<tr id="{@id}"><td><xsl:value-of select="concat(name, ' ', count(part))"/></td>
<xsl:for-each select="part"><td><xsl:value-of select="translate(., 'tx', 'TX')"/></td></xsl:for-each>
</tr>
</xsl:template>
</xsl:stylesheet>
EOF
}

run_program() {
    exec xsltproc --nonet "$inputs/style.xsl" "$inputs/list.xml" >/dev/null </dev/null
}

main "$@"
