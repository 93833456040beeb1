// Prints what Kubernetes itself says of quantities and of pods' requests, as
// JSON for tests/unit/vectors: the tests compare turb-kub with it.
//
//	go run . quantities > ../../tests/unit/vectors/quantities.json
//	go run . requests   > ../../tests/unit/vectors/requests.json
//
// The pods are made from a fixed seed, so that the same version prints the same.
package main

import (
	"encoding/json"
	"fmt"
	"math/rand"
	"os"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	helpers "k8s.io/component-helpers/resource"
)

type quantity struct {
	Text  string `json:"text"`
	Valid bool   `json:"valid"`
	Value int64  `json:"value"`
	Milli int64  `json:"milli"`
}

type podRequests struct {
	Spec     v1.PodSpec       `json:"spec"`
	Status   v1.PodStatus     `json:"status"`
	Requests map[string]int64 `json:"requests"`
}

func quantities() []quantity {
	texts := []string{
		"", " ", "+", "-", ".", "0", "00", "1", "+1", "-1", "1.", ".5", "1.5", "0.5", "007", "1_000", " 5 ", "5 ", "٣",
		"NaN", "Infinity", "0x10", "1,5", "1.2.3", "m", "Ki", "1e", "1E", "1e3", "1E3", "1e+3", "1e-3", "2.5e3", "1e3Ki",
		"1Ei", "12E", "12e0", "3E2", "1K", "1k", "1ki", "1Ki", "5mi", "5ni", "5Mi", "5mI", "0.1m", "0.0001", "1n", "1u",
		"100n", "0.1n", "0.4", "400m", "1500m", "0.0009", "1.1Gi", "1181116006400m", "129e6", "129M", "123Mi", "0.5Ki",
		"1.0Ki", "1Ti", "1Pi", "1T", "1P", "1G", "-0", "-5Mi", "- 5", "5-", "1e9", "1e-9", "1e-10", "1.5u", "0.7n",
		"1.23456789012", "999999999999", "4503599627370496",
	}
	random := rand.New(rand.NewSource(1))
	suffixes := []string{"", "m", "u", "n", "k", "M", "G", "T", "Ki", "Mi", "Gi", "Ti", "e2", "E-2", "e+1", "i", "K", "mi"}
	for len(texts) < 400 {
		text := fmt.Sprint(random.Intn(3000))
		if random.Intn(2) == 0 {
			text += "." + fmt.Sprint(random.Intn(1000))
		}
		texts = append(texts, text+suffixes[random.Intn(len(suffixes))])
	}
	var found []quantity
	for _, text := range texts {
		parsed, err := resource.ParseQuantity(text)
		if err != nil {
			found = append(found, quantity{Text: text})
			continue
		}
		found = append(found, quantity{text, true, parsed.Value(), parsed.MilliValue()})
	}
	return found
}

func list(random *rand.Rand) v1.ResourceList {
	amounts := map[v1.ResourceName][]string{
		v1.ResourceCPU:              {"100m", "0.25", "1", "1500m", "0.0005"},
		v1.ResourceMemory:           {"64Mi", "1.1Gi", "400m", "129e6", "1Gi", "0"},
		v1.ResourceEphemeralStorage: {"1Gi", "10M"},
		"hugepages-2Mi":             {"2Mi", "4Mi"},
		"example.com/gpu":           {"1", "2"},
	}
	result := v1.ResourceList{}
	for _, name := range []v1.ResourceName{"cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "example.com/gpu"} {
		if random.Intn(2) == 0 {
			result[name] = resource.MustParse(amounts[name][random.Intn(len(amounts[name]))])
		}
	}
	return result
}

func status(random *rand.Rand, name string) v1.ContainerStatus {
	found := v1.ContainerStatus{Name: name}
	if random.Intn(3) > 0 {
		found.Resources = &v1.ResourceRequirements{Requests: list(random)}
	}
	if random.Intn(2) > 0 {
		found.AllocatedResources = list(random)
	}
	return found
}

func pod(random *rand.Rand) *v1.Pod {
	made := &v1.Pod{}
	always := v1.ContainerRestartPolicyAlways
	for number := range 1 + random.Intn(3) {
		name := fmt.Sprintf("app-%d", number)
		made.Spec.Containers = append(made.Spec.Containers,
			v1.Container{Name: name, Resources: v1.ResourceRequirements{Requests: list(random)}})
		if random.Intn(3) == 0 {
			made.Status.ContainerStatuses = append(made.Status.ContainerStatuses, status(random, name))
		}
	}
	for number := range random.Intn(4) {
		name := fmt.Sprintf("init-%d", number)
		container := v1.Container{Name: name, Resources: v1.ResourceRequirements{Requests: list(random)}}
		if random.Intn(2) == 0 {
			container.RestartPolicy = &always
		}
		made.Spec.InitContainers = append(made.Spec.InitContainers, container)
		if random.Intn(3) == 0 {
			made.Status.InitContainerStatuses = append(made.Status.InitContainerStatuses, status(random, name))
		}
	}
	if random.Intn(3) == 0 {
		made.Spec.Resources = &v1.ResourceRequirements{Requests: list(random)}
		if random.Intn(2) == 0 {
			made.Status.Resources = &v1.ResourceRequirements{Requests: list(random)}
			made.Status.AllocatedResources = list(random)
		}
	}
	if random.Intn(3) == 0 {
		made.Spec.Overhead = list(random)
	}
	if random.Intn(4) == 0 {
		reason := []string{v1.PodReasonInfeasible, v1.PodReasonDeferred}[random.Intn(2)]
		made.Status.Conditions = []v1.PodCondition{{Type: v1.PodResizePending, Status: v1.ConditionTrue, Reason: reason}}
	}
	return made
}

func requests() []podRequests {
	random := rand.New(rand.NewSource(2))
	var found []podRequests
	for range 300 {
		made := pod(random)
		whole := map[string]int64{}
		// As kube-scheduler asks (framework.PodInfo): with what the status says of a resize.
		for name, amount := range helpers.PodRequests(made, helpers.PodResourcesOptions{
			UseStatusResources: true, InPlacePodLevelResourcesVerticalScalingEnabled: true,
		}) {
			value := amount.Value()
			if name == v1.ResourceCPU {
				value = amount.MilliValue()
			}
			if value != 0 {
				whole[string(name)] = value
			}
		}
		found = append(found, podRequests{made.Spec, made.Status, whole})
	}
	return found
}

func main() {
	var found any
	switch {
	case len(os.Args) == 2 && os.Args[1] == "quantities":
		found = quantities()
	case len(os.Args) == 2 && os.Args[1] == "requests":
		found = requests()
	default:
		fmt.Fprintln(os.Stderr, "usage: oracle quantities|requests")
		os.Exit(2)
	}
	if err := json.NewEncoder(os.Stdout).Encode(found); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
