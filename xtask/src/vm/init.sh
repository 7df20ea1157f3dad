#!/bin/busybox sh
# First process of the machine: tries the profiler and reports on the console, a block a case:
# `@@ NAME`, what was printed, `@= EXIT CODE`.
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mount -t securityfs securityfs /sys/kernel/security
mount -t tmpfs tmp /tmp
chmod 1777 /tmp
# A console line must not be broken by the kernel's own.
dmesg -n 1

block() { echo "@@ $1"; shift; "$@" 2>&1; echo "@= $?"; }

# Profiles the interpreter $1 and prints the stacks and what the program says of itself.
profile() {
    root=/py/$1
    mount -t proc proc "$root/proc"
    chroot "$root" "$(cat "$root/python")" -E -s -S /spin.py &
    pid=$!
    tries=0
    while ! grep -q leaf "$root/expected.new" 2>/dev/null && [ $tries -lt 300 ]; do
        usleep 100000
        tries=$((tries + 1))
    done
    echo "expected $(cat "$root/expected.new")"
    unwind run --pid $pid --rate 250 --duration 2s -o /tmp/profile.folded --stats /tmp/stats.json
    code=$?
    kill -9 $pid
    wait $pid 2>/dev/null
    umount "$root/proc"
    rm -f "$root/expected.new"
    sed 's/^/stack /' /tmp/profile.folded 2>/dev/null
    grep -E '"(interrupts|ok|kernel_ns_per_sample)"' /tmp/stats.json 2>/dev/null
    rm -f /tmp/profile.folded /tmp/stats.json
    return $code
}

newest=$(ls /py | tail -n 1)
block kernel uname -r
for label in $(ls /py); do
    block "stack-$label" profile "$label"
done
block cycles unwind run --event cycles --duration 1s -o /tmp/c.folded -- /bin/sleep 1
block user su nobody -s /bin/sh -c '/bin/unwind run --pid 1 --duration 1s -o /tmp/u.folded'
echo 2 >/proc/sys/kernel/yama/ptrace_scope
block yama-2 profile "$newest"
echo integrity >/sys/kernel/security/lockdown
block lockdown-integrity profile "$newest"
echo 3 >/proc/sys/kernel/yama/ptrace_scope
block yama-3 profile "$newest"
echo confidentiality >/sys/kernel/security/lockdown
block lockdown-confidentiality profile "$newest"
echo "@@ end"
echo "@= 0"
poweroff -f
