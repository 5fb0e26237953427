#!/bin/bash
# First process of a sandbox: starts the server and takes in every process whose parent is gone. The container ends with the server.
trap 'kill -TERM "$server" 2>/dev/null' TERM INT
node /opt/reindeer/server.mjs &
server=$!
while kill -0 "$server" 2>/dev/null; do wait "$server"; done
