#!/bin/sh
# A task worker in thirty lines of shell: fetches one task of a handler, works on it, and reports its output.
#
#     sh worker.sh http://localhost:4097 publish
set -eu
url=$1 handler=$2

post() { curl -sS --fail-with-body "$url/tasks/$1" -H 'Content-Type: application/json' -d "$2"; }

task=$(post fetch "{\"worker\": \"worker.sh\", \"handlers\": [\"$handler\"], \"lease\": 60, \"wait\": 30}")
id=$(printf '%s' "$task" | sed -n 's/^\[{"id":"\([^"]*\)".*/\1/p')
if [ -z "$id" ]; then
    echo "no task within 30 seconds"
    exit 75
fi
token=$(printf '%s' "$task" | sed -n 's/^\[{"id":"[^"]*","token":"\([^"]*\)".*/\1/p')

# The work; a longer one would send a heartbeat at least every 20 seconds.
post "$id/heartbeat" "{\"token\": \"$token\", \"details\": {\"step\": \"publishing\"}}" >/dev/null
post "$id/complete" "{\"token\": \"$token\", \"output\": \"published\"}" >/dev/null
echo "completed $id"
