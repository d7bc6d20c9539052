// Follows all ConfigMaps with a client-go informer and prints what it is told.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		panic(err)
	}
	client := kubernetes.NewForConfigOrDie(config)
	factory := informers.NewSharedInformerFactory(client, 0)
	maps := factory.Core().V1().ConfigMaps()
	say := func(what string) func(interface{}) {
		return func(object interface{}) {
			if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = gone.Obj
			}
			if one := object.(*corev1.ConfigMap); one.Namespace == "default" {
				fmt.Println(what, one.Name, one.Data["k"])
			}
		}
	}
	maps.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    say("add"),
		UpdateFunc: func(_, now interface{}) { say("update")(now) },
		DeleteFunc: say("delete"),
	})
	maps.Informer().SetWatchErrorHandler(func(r *cache.Reflector, err error) {
		fmt.Fprintln(os.Stderr, "watch:", err)
		cache.DefaultWatchErrorHandler(r, err)
	})
	stop := make(chan struct{})
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
	go func() { <-signals; close(stop) }()
	factory.Start(stop)
	if !cache.WaitForCacheSync(stop, maps.Informer().HasSynced) {
		panic("not synced")
	}
	fmt.Println("synced")
	<-stop
}
