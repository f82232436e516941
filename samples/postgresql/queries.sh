#!/bin/sh
# Start a server, read single rows by several clients, and stop it: queries.sh DATA CLIENTS TRANSACTIONS (of each
# client). As user postgres.
set -e
PATH=$(echo /usr/lib/postgresql/*/bin):$PATH
postgres -D "$1" -k /tmp -c listen_addresses= &
server=$!
until pg_isready -q -h /tmp; do sleep 0.01; done
pgbench -h /tmp -S -n -c "$2" -t "$3" --random-seed=1 postgres
kill -INT $server
wait $server
