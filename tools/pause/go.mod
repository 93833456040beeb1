module turb-kub.io/tools/pause

go 1.26.0
