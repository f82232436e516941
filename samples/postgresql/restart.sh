#!/bin/sh
# Start a server, read its table into its memory, and stop it: restart.sh DATA. As user postgres.
set -e
PATH=$(echo /usr/lib/postgresql/*/bin):$PATH
postgres -D "$1" -k /tmp -c listen_addresses= &
server=$!
until pg_isready -q -h /tmp; do sleep 0.01; done
psql -h /tmp -q -A -t -c "SELECT pg_prewarm('pgbench_accounts') AS blocks" postgres
kill -INT $server
wait $server
