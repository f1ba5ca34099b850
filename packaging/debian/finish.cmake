# SPDX-License-Identifier: MIT
# finish.cmake: CPack runs this with the packages that it has made.
execute_process(COMMAND bash "${CPACK_HAKMEM_SCRIPT}" ${CPACK_PACKAGE_FILES} RESULT_VARIABLE failed)
if(failed)
    message(FATAL_ERROR "packaging/debian/finish.sh failed")
endif()
