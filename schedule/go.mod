module github.com/tenure-project/tenure/schedule

go 1.26.0

require (
	github.com/netresearch/go-cron v0.9.1
	github.com/tenure-project/tenure v0.0.0
)

replace github.com/tenure-project/tenure => ../
