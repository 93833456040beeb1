// pause holds a pod's namespaces: it reaps orphans and waits to be told to go. With --version it says which one it is.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// version is written by the linker from roles/cluster/vars/main.yml.
var version = "unknown"

func main() {
	if len(os.Args) > 1 && os.Args[1] == "--version" {
		fmt.Println("pause", version)
		return
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for received := range signals {
		if received != syscall.SIGCHLD {
			return
		}
		for { // one signal may stand for several children
			if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
				break
			}
		}
	}
}
