#!/bin/sh
# A fault: runs a program while the first request of each queue pair is lost, captures its packets,
# and shows which packets were sent again. The program does not notice: RC repeats what is lost.
#
#   examples/fault.sh PROGRAM ARGUMENTS      RDMALAB names the binary where it is not in the PATH
set -eu
rdmalab=${RDMALAB:-rdmalab}
capture=$(mktemp -d)/fault.pcapng
"$rdmalab" exec --faults 'drop nth 1 of request' --capture "$capture" -- "$@"
"$rdmalab" trace "$capture"
rm -r "$(dirname "$capture")"
