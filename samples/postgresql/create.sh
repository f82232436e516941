#!/bin/sh
# Create a server with a table of SCALE times 100,000 rows (15 MB each): create.sh DATA SCALE. As user postgres.
set -e
PATH=$(echo /usr/lib/postgresql/*/bin):$PATH
initdb -D "$1" --no-sync >/dev/null
# Room for the table.
echo "shared_buffers = 2GB" >>"$1/postgresql.conf"
echo "autovacuum = off" >>"$1/postgresql.conf"
postgres -D "$1" -k /tmp -c listen_addresses= -c wal_level=minimal -c max_wal_senders=0 &
server=$!
until pg_isready -q -h /tmp; do sleep 0.1; done
pgbench -h /tmp -q -i -s "$2" postgres
psql -h /tmp -q -c 'CREATE EXTENSION pg_prewarm' -c 'CHECKPOINT' postgres
kill -INT $server
wait $server
